package ops

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

const secret = "a-token-of-some-length"

// serve serves a role on a loopback address until the end of the test.
func serve(t *testing.T, r *Role, token string) (url string) {
	t.Helper()
	ln, err := Listen(t.Context(), "127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, ln, token) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func get(t *testing.T, url, authorization string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestATokenProtectsTheMetricsOnly(t *testing.T) {
	url := serve(t, New("reaper", "v1"), secret)
	for _, tt := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", http.StatusUnauthorized},
		{"/metrics", "Bearer wrong", http.StatusUnauthorized},
		{"/metrics", secret, http.StatusUnauthorized},
		{"/metrics", "Bearer " + secret, http.StatusOK},
		{"/livez", "", http.StatusOK},
		{"/readyz", "", http.StatusOK},
		{"/other", "Bearer " + secret, http.StatusNotFound},
	} {
		status, body := get(t, url+tt.path, tt.authorization)
		if status != tt.want || strings.Contains(body, secret) {
			t.Errorf("%s with %q: %d %s, want %d", tt.path, tt.authorization, status, body, tt.want)
		}
	}
}

func TestListen(t *testing.T) {
	for _, tt := range []struct {
		address, token, wantErr string
	}{
		{"127.0.0.1:0", "", ""},
		{"[::1]:0", "", ""},
		{"0.0.0.0:0", secret, ""},
		{"0.0.0.0:0", "", "--metrics-token is required"},
		{":0", "", "--metrics-token is required"},
		{"127.0.0.1:0", "short", "at least 16"},
		{"nowhere", "", "--metrics-listen"},
	} {
		ln, err := Listen(t.Context(), tt.address, tt.token)
		if err == nil {
			ln.Close()
		}
		if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("Listen(%q, %q): %v, want %q", tt.address, tt.token, err, tt.wantErr)
		}
	}
}

// A role is ready when each of its services has started, and not while a check fails.
func TestReadyNamesTheServicesThatAreNot(t *testing.T) {
	r := New("up", "v1", "hostd", "gateway")
	url := serve(t, r, "")
	want := func(status int, texts ...string) {
		t.Helper()
		got, body := get(t, url+"/readyz", "")
		if got != status {
			t.Errorf("%d %s, want %d", got, body, status)
		}
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("%q lacks %q", body, text)
			}
		}
	}
	want(http.StatusServiceUnavailable, "hostd is starting", "gateway is starting")
	r.Ready("hostd", func(context.Context) error { return nil })
	want(http.StatusServiceUnavailable, "gateway is starting")
	var failed error
	r.Ready("gateway", func(context.Context) error { return failed })
	want(http.StatusOK, "ready")
	failed = errors.New("not connected")
	want(http.StatusServiceUnavailable, "gateway: not connected")
	r.Ready("hostd", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	want(http.StatusServiceUnavailable, "hostd: context deadline exceeded")
	var none *Role
	none.Ready("gateway", nil) // a service without a role
}

// The metrics of the log exist before anything happened, and pass the linter of promtool.
func TestTheMetricsOfTheLogBeginAtZero(t *testing.T) {
	r := New("scheduler", "v1")
	url := serve(t, r, "")
	_, body := get(t, url+"/metrics", "")
	for _, line := range []string{
		"millrace_processes_lost_total 0\n", "millrace_record_gaps_total 0\n", "millrace_appends_fenced_total 0\n",
		"millrace_log_append_seconds_count 0\n", `role="scheduler",version="v1"} 1`, "go_goroutines ",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("%q is missing", line)
		}
	}
	o := r.Observers()
	o.Lost.Inc()
	o.Append.Observe(time.Millisecond.Seconds())
	_, body = get(t, url+"/metrics", "")
	for _, line := range []string{"millrace_processes_lost_total 1\n", "millrace_log_append_seconds_count 1\n"} {
		if !strings.Contains(body, line) {
			t.Errorf("%q is missing", line)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
