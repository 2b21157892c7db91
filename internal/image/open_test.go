package image

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/millrace/millrace/events/kind"
)

// writeLayout writes an image as a layout and returns the files of its manifest, its configuration
// and its last layer.
func writeLayout(t *testing.T, img v1.Image) (dir string, files map[string]string) {
	t.Helper()
	dir = t.TempDir()
	at, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = at.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for what, d := range map[string]v1.Hash{"manifest": digest, "configuration": m.Config.Digest, "layer": m.Layers[len(m.Layers)-1].Digest} {
		files[what] = filepath.Join(dir, "blobs", "sha256", d.Hex)
	}
	return dir, files
}

// The digests of a layout are verified like a registry's: it may be copied incompletely or
// untrusted.
func TestLayoutDigestsAreVerified(t *testing.T) {
	for what, with := range map[string]func(old []byte) []byte{
		"":              nil,
		"manifest":      func(old []byte) []byte { return append(old, ' ') },
		"configuration": func(old []byte) []byte { return append(old, ' ') },
		"layer":         func([]byte) []byte { return layerTar(t, file("app", "another")) },
	} {
		t.Run(what, func(t *testing.T) {
			dir, files := writeLayout(t, ociImage(t))
			if with != nil {
				old, err := os.ReadFile(files[what])
				if err == nil {
					err = os.WriteFile(files[what], with(old), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			img, err := Open(t.Context(), dir, t.TempDir())
			if err == nil {
				_, _, err = packed(t, img, Options{})
			}
			if with == nil && err != nil || with != nil && !kind.Is(err, kind.Invalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A truncated layer is detected although an uncompressed layer has no end marker.
func TestTruncatedLayerOfALayoutIsRejected(t *testing.T) {
	whole := layerTar(t, file("a", "1"), file("b", "2"))
	sum, _, err := v1.SHA256(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := json.Marshal(v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{sum}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte, media types.MediaType) v1.Descriptor {
		t.Helper()
		h, n, err := v1.SHA256(bytes.NewReader(b))
		if err == nil {
			err = at.WriteBlob(h, io.NopCloser(bytes.NewReader(b)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return v1.Descriptor{MediaType: media, Size: n, Digest: h}
	}
	m, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: put(conf, types.OCIConfigJSON),
		Layers: []v1.Descriptor{put(whole, types.OCIUncompressedLayer)}})
	if err == nil {
		err = at.AppendDescriptor(put(m, types.OCIManifestSchema1))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{len(whole), 1024} { // of the first file
		if err := os.Truncate(filepath.Join(dir, "blobs", "sha256", sum.Hex), int64(n)); err != nil {
			t.Fatal(err)
		}
		img, err := Open(t.Context(), dir, t.TempDir())
		if err == nil {
			_, _, err = packed(t, img, Options{})
		}
		if n == len(whole) && err != nil || n < len(whole) && !kind.Is(err, kind.Invalid) {
			t.Errorf("%d bytes of %d: %v", n, len(whole), err)
		}
	}
}

// The claimed size of a sparse configuration in a tar is not allocated.
func TestSparseConfigurationIsRejected(t *testing.T) {
	at := filepath.Join(t.TempDir(), "image.tar")
	manifest := layerTar(t, file("manifest.json", `[{"Config":"conf.json","Layers":[]}]`))
	if err := os.WriteFile(at, append(sparse("conf.json", 1<<26)[:512], manifest...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), at, t.TempDir()); !kind.Is(err, kind.Invalid) || !strings.Contains(kind.Message(err), "larger than the archive") {
		t.Errorf("got %v", err)
	}
}
