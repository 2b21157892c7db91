package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/millrace/millrace/events/kind"
)

// hub is a registry that requires tokens, as Docker Hub does. Another server issues them,
// with or without a password. Before open is set it accepts pushes.
type hub struct {
	store     http.Handler
	tokens    *httptest.Server
	password  string // empty: public
	open      bool
	cut       bool     // truncate layers
	requested []string // requested scopes
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.open && r.Header.Get("Authorization") != "Bearer good" {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="hub.test",scope="repository:library/some:pull"`, strings.Replace(h.tokens.URL, "127.0.0.1", "localhost", 1)))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if h.cut && strings.Contains(r.URL.Path, "/blobs/") {
		w = &truncatingWriter{ResponseWriter: w}
	}
	h.store.ServeHTTP(w, r)
}

// truncatingWriter truncates a response before its last byte, unless it is a configuration.
type truncatingWriter struct{ http.ResponseWriter }

func (h *truncatingWriter) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(b, []byte("{")) {
		h.ResponseWriter.Write(b[:len(b)-1])
		panic(http.ErrAbortHandler)
	}
	return h.ResponseWriter.Write(b)
}

func (h *hub) token(w http.ResponseWriter, r *http.Request) {
	h.requested = append(h.requested, r.FormValue("service")+" "+r.FormValue("scope"))
	if _, password, _ := r.BasicAuth(); password != h.password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	json.NewEncoder(w).Encode(map[string]string{"token": "good"})
}

// newHub serves a multi-platform image with gzip and zstd layers as library/some:1.
func newHub(t *testing.T, password string) (*hub, string) {
	t.Helper()
	h := &hub{store: registry.New(registry.Logger(log.New(io.Discard, "", 0))), password: password}
	h.tokens = httptest.NewServer(http.HandlerFunc(h.token))
	t.Cleanup(h.tokens.Close)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	at := strings.TrimPrefix(srv.URL, "http://") + "/library/some:1"
	ref, err := name.ParseReference(at)
	if err != nil {
		t.Fatal(err)
	}
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range []v1.Platform{{OS: "linux", Architecture: other}, {OS: "linux", Architecture: runtime.GOARCH}, {OS: "unknown", Architecture: "unknown"}} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: platformImage(t, p), Descriptor: v1.Descriptor{Platform: &p}})
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	h.open = true
	return h, at
}

func platformImage(t *testing.T, p v1.Platform) v1.Image {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for i, l := range [][]tar.Header{{file("platform", p.Architecture), file("gone", "x")}, {file(".wh.gone", "")}} {
		b := layerTar(t, l...)
		how, media := compression.GZip, types.OCILayer
		if i == 1 {
			how, media = compression.ZStd, types.OCILayerZStd
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
			tarball.WithCompression(how), tarball.WithMediaType(media))
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	conf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	conf = conf.DeepCopy()
	conf.OS, conf.Architecture = p.OS, p.Architecture
	if img, err = mutate.ConfigFile(img, conf); err != nil {
		t.Fatal(err)
	}
	return img
}

// Pull works with a registry like Docker Hub: with tokens, indexes and compressed layers.
func TestPullFromARegistryWithTokens(t *testing.T) {
	for what, tt := range map[string]struct {
		needs, shown string
		ok           bool
	}{"public": {"", "", true}, "right password": {"secret", "secret", true}, "wrong password": {"secret", "wrong", false}, "missing password": {"secret", "", false}} {
		t.Run(what, func(t *testing.T) {
			h, at := newHub(t, tt.needs)
			r := Registry{Scratch: t.TempDir(), Transport: http.DefaultTransport}
			if tt.shown != "" {
				r.Username, r.Password = "me", tt.shown
			}
			img, _, err := Pull(t.Context(), at, r)
			if !tt.ok {
				if !kind.Is(err, kind.NotFound) || strings.Contains(kind.Message(err), tt.needs) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			files, _, err := packed(t, img, Options{})
			if _, there := files["gone"]; err != nil || files["platform"] != runtime.GOARCH || there {
				t.Errorf("files %v, %v", files, err)
			}
			if len(h.requested) == 0 || h.requested[0] != "hub.test repository:library/some:pull" {
				t.Errorf("tokens for %q", h.requested)
			}
		})
	}
}

// A truncated layer is a temporary error of the registry.
func TestTruncatedDownloadIsUnavailable(t *testing.T) {
	h, at := newHub(t, "")
	h.cut = true
	img, _, err := Pull(t.Context(), at, Registry{Scratch: t.TempDir(), Transport: http.DefaultTransport})
	if err == nil {
		_, _, err = packed(t, img, Options{})
	}
	if !kind.Is(err, kind.Unavailable) || !strings.Contains(kind.Message(err), "EOF") {
		t.Errorf("got %v, message %q", err, kind.Message(err))
	}
}
