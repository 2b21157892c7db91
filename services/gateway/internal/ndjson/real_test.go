package ndjson_test

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
	"github.com/millrace/millrace/services/gateway/internal/ndjson"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/record/recordtest"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// TestCommandsOverARealLog covers C-034.
// The test goes through the surface, the operations, a real log and a host.
func TestCommandsOverARealLog(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	coretest.Run(t, log, view)
	c := operations.New(core.Config{Log: log, View: view, Secret: []byte("secret"), Sealer: eventstest.Ring(t, log)})
	streams := stream.New(stream.Config{})
	url := recordtest.Serve(t, streams, ndjson.New(record.NewGateway(c), streams).Register)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Provisioner.CreateSandbox(ctx, core.Principal{Tenant: recordtest.Tenant}, sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, body, want string }{
		{"output", `{"cmd":"echo 1 2 3"}`, `^{"type":"start","pid":\d+,"process":"[0-9a-z-]+"}
{"type":"stdout","data":"1\\n"}
{"type":"stdout","data":"2\\n"}
{"type":"stdout","data":"3\\n"}
{"type":"end","exit_code":0}
$`},
		{"a code", `{"cmd":"fail"}`, `"exit_code":3}\n$`},
		{"a command that cannot start", `{"cmd":"nocwd"}`, `^{"type":"error","error_code":"invalid","message":"[^"]+"}\n{"type":"end","exit_code":null,"signal":null,"cause":"not_started"}\n$`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := recordtest.Do(t, url, recordtest.Request{Method: "POST", Path: "/commands", Body: tt.body})
			if resp.StatusCode != 200 || !regexp.MustCompile(tt.want).MatchString(body) {
				t.Errorf("%d\n%s\nwant\n%s", resp.StatusCode, body, tt.want)
			}
		})
	}
	t.Run("a kill by another request", func(t *testing.T) {
		resp := recordtest.Open(t, url, recordtest.Request{Method: "POST", Path: "/commands", Body: `{"cmd":"sleep"}`})
		r := bufio.NewReader(resp.Body)
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, `"start"`) {
			t.Fatalf("got %q, %v", line, err)
		}
		id := resp.Header.Get("X-Process-Id")
		for _, path := range []string{"/commands", "/commands/" + id} {
			if _, body := recordtest.Do(t, url, recordtest.Request{Method: "GET", Path: path}); !strings.Contains(body, id) {
				t.Errorf("%s: %s", path, body)
			}
		}
		if resp, body := recordtest.Do(t, url, recordtest.Request{Method: "POST", Path: "/commands/" + id + "/kill"}); resp.StatusCode != 200 {
			t.Errorf("kill: %d %s", resp.StatusCode, body)
		}
		rest, err := io.ReadAll(r)
		if want := `{"type":"end","exit_code":-1,"signal":9,"cause":"killed"}` + "\n"; err != nil || string(rest) != want {
			t.Errorf("got %s, %v, want %s", rest, err, want)
		}
	})
	t.Run("a retry", func(t *testing.T) {
		req := recordtest.Request{Method: "POST", Path: "/commands", Body: `{"cmd":"echo once"}`, Header: map[string]string{"Idempotency-Key": "k"}}
		resp, first := recordtest.Do(t, url, req)
		id := resp.Header.Get("X-Process-Id")
		resp, second := recordtest.Do(t, url, req)
		if first != second || id == "" || resp.Header.Get("X-Process-Id") != id {
			t.Errorf("%s: %s%s", id, first, second)
		}
		req.Body = `{"cmd":"echo twice"}`
		if resp, body := recordtest.Do(t, url, req); resp.StatusCode != 409 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	})
}
