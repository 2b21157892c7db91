package builder

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/template"
)

// serveImage starts a registry with an image of one file, and returns the image's name.
func serveImage(t *testing.T) string {
	t.Helper()
	blobs := map[string][]byte{}
	put := func(b []byte) string {
		sum := sha256.Sum256(b)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		blobs[digest] = b
		return fmt.Sprintf(`"digest":%q,"size":%d`, digest, len(b))
	}
	layer := tarOf(t, "a")
	layerIs := put(layer)
	sum := sha256.Sum256(layer)
	conf := fmt.Sprintf(`{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, runtime.GOARCH, sum)
	const media = "application/vnd.oci.image."
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%smanifest.v1+json","config":{"mediaType":"%sconfig.v1+json",%s},"layers":[{"mediaType":"%slayer.v1.tar",%s}]}`,
		media, media, put([]byte(conf)), media, layerIs)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := blobs[path.Base(r.URL.Path)]
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", media+"manifest.v1+json")
			body = []byte(manifest)
		}
		bytes.NewReader(body).WriteTo(w)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://") + "/some/image:1"
}

// Parts of an image that the store lost are imported again.
func TestLostImagePartsAreImportedAgain(t *testing.T) {
	f := newFixture(t, "", "")
	at := serveImage(t)
	var first string
	for n := range 2 {
		s := startBuild(t, f.Operations, f.principal, build.Spec{Image: at})
		r := f.next(s)
		r.resolver.registries.listed = []string{"127.0.0.1"}
		o, err := r.resolver.resolve(t.Context())
		if err == nil {
			err = f.view.Sync(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		tmpl, ok := f.view.TemplateByID(template.ID(o.template))
		if n == 0 {
			first = o.template
		}
		if !ok || len(tmpl.Manifest.Parts) == 0 || o.template != first {
			t.Fatalf("base %q, before %q; %+v", o.template, first, tmpl)
		}
		for _, sum := range tmpl.Manifest.Parts {
			if has, err := f.Templates.HasTemplatePart(t.Context(), sum); !has || err != nil {
				t.Errorf("build %d: part %s is not stored, %v", n, sum, err)
			}
			if err := f.log.RemovePart(t.Context(), sum); err != nil {
				t.Fatal(err)
			}
		}
	}
}
