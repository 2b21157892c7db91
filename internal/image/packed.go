package image

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the maximum window of zstd, which is held in memory: the default of the zstd
// program.
const maxWindow = 128 << 20

// boundedImage is an image whose layers unpack with bounded memory.
type boundedImage struct{ v1.Image }

// Layers returns the image's layers as narrow layers.
func (n boundedImage) Layers() ([]v1.Layer, error) {
	all, err := n.Image.Layers()
	for i := range all {
		all[i] = boundedLayer{all[i]}
	}
	return all, err
}

type boundedLayer struct{ v1.Layer }

// Uncompressed returns the layer's tar. It detects the compression from the data and
// ignores the media type.
func (l boundedLayer) Uncompressed() (io.ReadCloser, error) {
	raw, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(raw)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		raw.Close()
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			raw.Close()
			return nil, err
		}
		return unpacking{z, raw}, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			raw.Close()
			return nil, err
		}
		return unpacking{z, alsoClose{z, raw}}, nil
	}
	return unpacking{b, raw}, nil
}

// unpacking combines a reader with the closer of its source.
type unpacking struct {
	io.Reader
	io.Closer
}

// alsoClose closes a decoder together with its source.
type alsoClose struct {
	z *zstd.Decoder
	io.Closer
}

// Close closes both.
func (a alsoClose) Close() error {
	a.z.Close()
	return a.Closer.Close()
}
