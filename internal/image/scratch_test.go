package image

import (
	"bytes"
	"io"
	"math"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// Reading a layer fails when the disk has too little free space, which is checked now and
// then.
func TestLayerKeepsDiskSpaceFree(t *testing.T) {
	layer := bytes.Repeat([]byte("x"), 3*diskCheckInterval)
	r := &limitedLayer{ReadCloser: io.NopCloser(bytes.NewReader(layer)), scratch: t.TempDir(), least: 1}
	buf := make([]byte, 1<<20)
	if _, err := io.ReadFull(r, buf); err != nil {
		t.Fatal(err)
	}
	r.least = math.MaxInt64 // the disk is full
	n, err := io.Copy(io.Discard, r)
	if !kind.Is(err, kind.Exhausted) || n > diskCheckInterval {
		t.Errorf("read %d more bytes, %v", n, err)
	}
}
