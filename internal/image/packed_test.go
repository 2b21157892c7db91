package image

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/events/kind"
)

// served serves an image with one layer, compressed as given, and returns its reference.
func served(t *testing.T, layer, packedLayer []byte) string {
	t.Helper()
	blobs := map[string][]byte{}
	put := func(b []byte, media types.MediaType) v1.Descriptor {
		h, n, err := v1.SHA256(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		blobs[h.String()] = b
		return v1.Descriptor{MediaType: media, Size: n, Digest: h}
	}
	sum, _, err := v1.SHA256(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := json.Marshal(v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{sum}}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: put(conf, types.OCIConfigJSON),
		Layers: []v1.Descriptor{put(packedLayer, types.OCILayer)}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			w.Write(m)
			return
		}
		w.Write(blobs[path.Base(r.URL.Path)])
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://") + "/some/image:1"
}

// windowed returns a zstd frame with a window of 1<<log bytes.
func windowed(t *testing.T, b []byte, log int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Flush() // otherwise the frame has the content size instead
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || out.Bytes()[4]&0x20 != 0 {
		t.Fatal("no frame with a window", err)
	}
	out.Bytes()[5] = byte(log-10) << 3
	return out.Bytes()
}

// A layer is unpacked with any compression, regardless of its media type, but only with bounded
// memory.
func TestLayerIsUnpackedWithBoundedMemory(t *testing.T) {
	layer := layerTar(t, file("a", "1"))
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(layer); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		as []byte
		ok bool
	}{
		"uncompressed":   {layer, true},
		"gzip":           {zipped.Bytes(), true},
		"zstd":           {windowed(t, layer, 23), true},
		"a wide window":  {windowed(t, layer, 27), true},
		"too wide":       {windowed(t, layer, 28), false},
		"second frame":   {append(windowed(t, layer[:512], 23), windowed(t, layer[512:], 29)...), false},
		"two frames":     {append(windowed(t, layer[:512], 23), windowed(t, layer[512:], 23)...), true},
		"nothing":        {nil, false},
		"truncated gzip": {zipped.Bytes()[:zipped.Len()/2], false},
		"gzip and more":  {append(zipped.Bytes()[:zipped.Len():zipped.Len()], 'x'), false},
	} {
		img, _, err := Pull(t.Context(), served(t, layer, tt.as), Registry{Scratch: t.TempDir(), Transport: http.DefaultTransport})
		var files map[string]string
		if err == nil {
			files, _, err = packed(t, img, Options{})
		}
		switch {
		case tt.ok && (err != nil || files["a"] != "1"):
			t.Errorf("%s: %v, %v", what, files, err)
		case !tt.ok && err == nil, strings.HasSuffix(what, "one") && !kind.Is(err, kind.Invalid):
			t.Errorf("%s: %v", what, err)
		}
	}
}
