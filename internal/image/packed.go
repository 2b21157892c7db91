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

// maxWindow bounds how far back zstd may refer to what it has unpacked, all of which is in
// memory: as much as its own program unpacks unless told otherwise.
const maxWindow = 128 << 20

// narrow is an image whose layers are unpacked in little memory.
type narrow struct{ v1.Image }

// Layers are the image's.
func (n narrow) Layers() ([]v1.Layer, error) {
	all, err := n.Image.Layers()
	for i := range all {
		all[i] = narrowLayer{all[i]}
	}
	return all, err
}

type narrowLayer struct{ v1.Layer }

// Uncompressed is the layer's tar, whatever it says that it is packed by.
func (l narrowLayer) Uncompressed() (io.ReadCloser, error) {
	raw, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(raw)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		raw.Close() //nolint:errcheck // nobody reads on
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			raw.Close() //nolint:errcheck // nobody reads on
			return nil, err
		}
		return unpacking{z, raw}, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			raw.Close() //nolint:errcheck // nobody reads on
			return nil, err
		}
		return unpacking{z, alsoClose{z, raw}}, nil
	}
	return unpacking{b, raw}, nil
}

// unpacking reads from one and closes another.
type unpacking struct {
	io.Reader
	io.Closer
}

// alsoClose ends a decoder with what it reads.
type alsoClose struct {
	z *zstd.Decoder
	io.Closer
}

// Close ends both.
func (a alsoClose) Close() error {
	a.z.Close()
	return a.Closer.Close()
}
