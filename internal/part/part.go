// Package part packs the parts of a template's tar for the way, and unpacks what
// came from somebody else: no more than a part has, and nothing but what its sum
// says. See events/template.
package part

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// MaxPacked is the most bytes a packed part has: what cannot be compressed grows
// by a little.
const MaxPacked = template.PartSize + 64<<10

// Packer packs and unpacks. It belongs to one goroutine.
type Packer struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
	buf []byte
}

// New gives a Packer.
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

// Close lets go of a Packer's memory.
func (p *Packer) Close() {
	p.enc.Close() //nolint:errcheck // it writes nowhere
	p.dec.Close()
}

// Pack gives a part as it is stored. The bytes are the caller's.
func (p *Packer) Pack(part []byte) []byte { return p.enc.EncodeAll(part, nil) }

// Unpack gives the part of that sum and size; the bytes are good until the next
// call. Invalid if it is not that part.
func (p *Packer) Unpack(packed []byte, sum template.Sum, size int) ([]byte, error) {
	data, err := p.open(packed, size)
	if err == nil && (len(data) != size || template.SumOf(data) != sum) {
		err = kind.New(kind.Invalid, "unpack", string(sum), "a part of the template is not what its sum says")
	}
	return data, err
}

// Check is Unpack for who knows the sum only.
func (p *Packer) Check(packed []byte, sum template.Sum) error {
	data, err := p.open(packed, template.PartSize)
	if err == nil && template.SumOf(data) != sum {
		err = kind.New(kind.Invalid, "unpack", string(sum), "a part of the template is not what its sum says")
	}
	return err
}

// open unpacks at most size bytes, whatever the packed ones claim.
func (p *Packer) open(packed []byte, size int) ([]byte, error) {
	if err := p.dec.Reset(bytes.NewReader(packed)); err != nil {
		return nil, kind.Wrap(kind.Invalid, "unpack", "", err)
	}
	if cap(p.buf) < size+1 {
		p.buf = make([]byte, size+1)
	}
	n, err := io.ReadFull(p.dec, p.buf[:size+1])
	if err == nil {
		return nil, kind.New(kind.Invalid, "unpack", "", "a part of the template is larger than it may be")
	}
	if err != io.ErrUnexpectedEOF && err != io.EOF { //nolint:errorlint // ReadFull gives these as they are
		return nil, kind.Wrap(kind.Invalid, "unpack", "", err)
	}
	return p.buf[:n], nil
}
