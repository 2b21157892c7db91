package processes

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/cli/client"
)

// An export that the gateway broke off is an error, although its response is whole.
func TestDownload(t *testing.T) {
	const whole = "{\"version\":2}\n[0.000000, \"o\", \"hi\"]\n[0.000000, \"x\", \"0\"]\n"
	for body, ok := range map[string]bool{whole: true, whole + "[0.000000, \"m\", \"incomplete: the export was broken off\"]\n": false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/processes/p1/export.cast" {
				t.Error(r.URL.Path)
			}
			for line := range strings.Lines(body) {
				w.Write([]byte(line))
			}
		}))
		defer srv.Close()
		c, err := client.New(srv.URL, "key")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := download(t.Context(), c, "p1", &out); (err == nil) != ok || out.String() != body {
			t.Errorf("%q: got %q, %v", body, out.String(), err)
		}
	}
}
