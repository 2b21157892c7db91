// Package part compresses the parts of a template's tar for transfer and decompresses
// untrusted parts: it bounds their size and checks their sum. See events/template.
package part

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// MaxPacked is the maximum size of a packed part: incompressible data grows slightly.
const MaxPacked = template.PartSize + 64<<10

// Packer packs and unpacks parts. It is not safe for concurrent use.
type Packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
	buf []byte
}

// New returns a Packer.
func New() (*Packer, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(2*template.PartSize))
	if err != nil {
		return nil, err
	}
	return &Packer{enc: enc, dec: dec}, nil
}

// Close releases the memory of a Packer.
func (p *Packer) Close() {
	p.enc.Close()
	p.dec.Close()
}

// Pack returns a part as it is stored. The caller owns the bytes.
func (p *Packer) Pack(part []byte) []byte { return p.enc.EncodeAll(part, nil) }

// Unpack returns the part with the given sum and size, or Invalid if packed is another
// part. The bytes are valid until the next call.
func (p *Packer) Unpack(packed []byte, sum template.Sum, size int) ([]byte, error) {
	data, err := p.open(packed, size)
	if err == nil && (len(data) != size || template.SumOf(data) != sum) {
		err = kind.New(kind.Invalid, "unpack", string(sum), "a part of the template does not match its checksum")
	}
	return data, err
}

// Check checks a packed part of unknown size against its sum.
func (p *Packer) Check(packed []byte, sum template.Sum) error {
	data, err := p.open(packed, template.PartSize)
	if err == nil && template.SumOf(data) != sum {
		err = kind.New(kind.Invalid, "unpack", string(sum), "a part of the template does not match its checksum")
	}
	return err
}

// open unpacks at most size bytes and returns Invalid for more, whatever the header of
// packed claims.
func (p *Packer) open(packed []byte, size int) ([]byte, error) {
	if err := p.dec.Reset(bytes.NewReader(packed)); err != nil {
		return nil, kind.Wrap(kind.Invalid, "unpack", "", err)
	}
	if cap(p.buf) < size+1 {
		p.buf = make([]byte, size+1)
	}
	n, err := io.ReadFull(p.dec, p.buf[:size+1])
	if err == nil {
		return nil, kind.New(kind.Invalid, "unpack", "", "a part of the template exceeds the maximum size")
	}
	if err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, kind.Wrap(kind.Invalid, "unpack", "", err)
	}
	return p.buf[:n], nil
}
