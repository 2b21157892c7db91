package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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
	return serve(t, imagesOf(t, dir))
}

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// imagesOf returns a registry with the image of an OCI layout as busybox:test.
func imagesOf(t *testing.T, dir string) http.HandlerFunc {
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
	return func(w http.ResponseWriter, r *http.Request) {
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
	}
}

// TestTemplateSDK builds templates by the released e2b packages, unmodified.
func TestTemplateSDK(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" || os.Geteuid() != 0 {
		t.Skip("the driver does not support templates, or has no root user")
	}
	a, at := api(t), registry(t, image(t, 1000))
	for _, pkg := range []string{"e2b", "e2b-245"} {
		t.Run(pkg, func(t *testing.T) { runNode(t, a, "templates.mjs", pkg, at) })
	}
}

// TestTemplateOfAWSRegistry builds from an image that requires an ECR password. The
// builder's own tests check the AWS signature of the password request. Neither the key nor
// the password is in a file or in output.
func TestTemplateOfAWSRegistry(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" || os.Geteuid() != 0 {
		t.Skip("the driver does not support templates, or has no root user")
	}
	const password = "canary-of-ecr"
	ecr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=AKIAMINE/") {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"__type":"UnrecognizedClientException","message":"The security token included in the request is invalid."}`)
			return
		}
		fmt.Fprintf(w, `{"authorizationData":[{"authorizationToken":%q}]}`, base64.StdEncoding.EncodeToString([]byte("AWS:"+password)))
	}))
	images := imagesOf(t, image(t, 1000))
	at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, word, ok := r.BasicAuth(); !ok || name != "AWS" || word != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="ecr"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images(w, r)
	}))
	up := rig.NewUp(t, rig.Options{Args: []string{"--registries", "127.0.0.1", "--ecr-endpoint", "http://" + ecr, "--log-level", "debug"}})
	runNode(t, up.API, "ecr.mjs", at)
	for _, canary := range []string{password, "canary-of-the-key"} {
		if strings.Contains(up.Dump(), canary) {
			t.Errorf("%s was printed", canary)
		}
		if err := grepTree(up.Data, canary); err != nil {
			t.Error(err)
		}
	}
}
