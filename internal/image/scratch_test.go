package image

import (
	"bytes"
	"io"
	"math"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// A layer is read on as long as its disk has room, which is looked at now and then.
func TestALayerLeavesRoomOnTheDisk(t *testing.T) {
	layer := bytes.Repeat([]byte("x"), 3*roomChecks)
	r := &roomy{ReadCloser: io.NopCloser(bytes.NewReader(layer)), scratch: t.TempDir(), least: 1}
	buf := make([]byte, 1<<20)
	if _, err := io.ReadFull(r, buf); err != nil {
		t.Fatal(err)
	}
	r.least = math.MaxInt64 // others have taken the rest
	n, err := io.Copy(io.Discard, r)
	if !kind.Is(err, kind.Exhausted) || n > roomChecks {
		t.Errorf("%d bytes more, %v", n, err)
	}
}
