package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// registry serves the image of an OCI layout as busybox:test, on loopback.
func registry(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct {
		Manifests []struct {
			Digest    string `json:"digest"`
			MediaType string `json:"mediaType"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		t.Fatal(err)
	}
	top := index.Manifests[0]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		digest, ok := strings.CutPrefix(r.URL.Path, "/v2/busybox/blobs/")
		switch r.URL.Path {
		case "/v2/":
			return
		case "/v2/busybox/manifests/test", "/v2/busybox/manifests/" + top.Digest:
			digest, ok = top.Digest, true
			w.Header().Set("Content-Type", top.MediaType)
			w.Header().Set("Docker-Content-Digest", top.Digest)
		}
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeFile(w, r, filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:")))
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// TestTemplateSDK builds templates by the released e2b packages, unmodified.
func TestTemplateSDK(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" || os.Geteuid() != 0 {
		t.Skip("the driver makes nothing from templates, or there is no root in it")
	}
	a, at := api(t), registry(t, image(t, 1000))
	for _, pkg := range []string{"e2b", "e2b-245"} {
		t.Run(pkg, func(t *testing.T) { runNode(t, a, "templates.mjs", pkg, at) })
	}
}
