package connect

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// compressFrom is the minimum size of a message that is compressed.
const compressFrom = 1 << 10

// zippers and unzippers are pools of coders.
var (
	zippers = sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		return z
	}}
	unzippers = sync.Pool{New: func() any { return new(gzip.Reader) }}
)

// gunzip decompresses msg. It stops with an error as soon as the result is larger
// than limit.
func gunzip(msg []byte, limit int) ([]byte, error) {
	z := unzippers.Get().(*gzip.Reader) //nolint:errcheck,forcetypeassert // only Readers are put
	defer unzippers.Put(z)
	if err := z.Reset(bytes.NewReader(msg)); err != nil {
		return nil, fail(CodeInvalid, "gzip: %v", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err != nil {
		return nil, fail(CodeInvalid, "gzip: %v", err)
	}
	if len(out) > limit {
		return nil, fail(CodeExhausted, "message is larger than the limit of %d", limit)
	}
	return out, nil
}

// appendGzip appends msg compressed with gzip.
func appendGzip(dst, msg []byte) []byte {
	z := zippers.Get().(*gzip.Writer) //nolint:errcheck,forcetypeassert // only Writers are put
	defer zippers.Put(z)
	buf := bytes.NewBuffer(dst)
	z.Reset(buf)
	z.Write(msg) //nolint:errcheck // a Buffer takes everything
	z.Close()
	return buf.Bytes()
}
