package files

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// RFC 9110, 12.5.3: identity is acceptable unless it is refused, and costs least.
func TestNegotiate(t *testing.T) {
	for _, tt := range []struct {
		accept, coding string
		ok             bool
	}{
		{"", "", true},
		{"identity", "", true},
		{"gzip", codingGzip, true},
		{"GZIP", codingGzip, true},
		{"gzip, deflate", "", true},
		{"gzip, deflate, br", "", true},
		{"br", "", true},
		{"*", "", true},
		{"gzip;q=0", "", true},
		{"gzip;q=0.0, br", "", true},
		{"gzip;q=0.2, identity;q=0.1", codingGzip, true},
		{"gzip; q=0.1, identity", "", true},
		{"identity;q=0, gzip", codingGzip, true},
		{"identity;q=0, *", codingGzip, true},
		{"identity;q=0", "", false},
		{"*;q=0", "", false},
		{"gzip;q=0, *;q=0", "", false},
		{"br, *;q=0", "", false},
		{"*;q=0, identity", "", true},
	} {
		if coding, ok := negotiate(tt.accept); coding != tt.coding || ok != tt.ok {
			t.Errorf("negotiate(%q) = %q, %v; want %q, %v", tt.accept, coding, ok, tt.coding, tt.ok)
		}
	}
}

// panicStream is a sandbox whose response panics when it is read.
type panicStream struct{ io.Writer }

func (panicStream) Read([]byte) (int, error) { panic("no word") }
func (panicStream) CloseWrite() error        { return nil }
func (panicStream) Abort(error)              {}

func TestPanicCutsTheDownload(t *testing.T) {
	f, err := core.OpenFilesOver(t.Context(), panicStream{io.Discard}, &file.Request{Op: file.OpRead})
	if err != nil {
		t.Fatal(err)
	}
	d := &download{f: f, cancel: func() {}, log: slog.New(slog.DiscardHandler)}
	res, err := d.compressed(make(http.Header))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); !kind.Is(err, kind.Internal) {
		t.Errorf("got %v", err)
	}
}
