package builder

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
)

func TestOnlyPublicRegistries(t *testing.T) {
	for address, public := range map[string]bool{
		"127.0.0.1:80": false, "10.1.2.3:443": false, "169.254.169.254:80": false, "[::1]:80": false, "[fd00::1]:80": false,
		"[::ffff:127.0.0.1]:80": false, "[64:ff9b::7f00:1]:80": false, "0.0.0.0:80": false, "100.100.1.1:80": false, "[fe80::1%lo]:80": false,
		"1.1.1.1:443": true, "[2606:4700::1]:443": true, "name:80": false,
	} {
		err := onlyPublic(address)
		if (err == nil) != public || err != nil && !kind.Is(err, kind.Denied) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestListedRegistriesAreReachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	get := func(cfg registries) error {
		tr := cfg.transport()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	if err := get(registries{}); err == nil || !strings.Contains(err.Error(), "not public") {
		t.Errorf("without listed registries: %v", err)
	}
	at := strings.TrimPrefix(srv.URL, "http://")
	host, _, _ := strings.Cut(at, ":")
	for _, name := range []string{at, host} {
		if err := get(registries{listed: []string{name}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := get(registries{listed: []string{host + ":1"}}); err == nil {
		t.Error("another port of the same host was reached")
	}
}

// A registry that stops in the middle of a layer does not delay a build for its hour.
func TestStalledRegistryTimesOut(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	cfg := registries{listed: []string{"127.0.0.1"}, stall: 2 * time.Second}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := cfg.transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "half" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", b, err)
	}
}
