package image

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// A manifest is untrusted and read into memory: it is not read beyond its bound, also
// after a redirect.
func TestManifestIsBounded(t *testing.T) {
	const (
		begin = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"sha256:` +
			`44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[{}`
		end = `]}`
	)
	for what, tt := range map[string]struct {
		bytes     int
		elsewhere bool // the registry redirects
		want      string
	}{
		"maximum length":             {maxManifest, false, "layers, the maximum is"},
		"too long":                   {maxManifest + 1, false, "exceeds"},
		"too long, after a redirect": {maxManifest + 1, true, "exceeds"},
	} {
		t.Run(what, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch at := r.URL.Path; {
				case at == "/v2/":
				case strings.Contains(at, "/blobs/sha256:"):
					fmt.Fprint(w, "{}")
				case tt.elsewhere && at != "/blobs/manifest":
					http.Redirect(w, r, "/blobs/manifest", http.StatusTemporaryRedirect)
				default:
					w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
					more := tt.bytes - len(begin) - len(end)
					fmt.Fprint(w, begin, strings.Repeat(" ", more%3)+strings.Repeat(",{}", more/3)+end)
				}
			}))
			defer srv.Close()
			at := strings.TrimPrefix(srv.URL, "http://") + "/x/blobs/y:1"
			_, _, err := Pull(t.Context(), at, Registry{Scratch: t.TempDir(), Transport: http.DefaultTransport})
			if !kind.Is(err, kind.Invalid) || !strings.Contains(kind.Message(err), tt.want) {
				t.Errorf("got %v; want %q in it", err, tt.want)
			}
		})
	}
}
