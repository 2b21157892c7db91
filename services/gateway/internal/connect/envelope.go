package connect

import (
	"encoding/binary"
	"errors"
	"io"
)

// Flags of an envelope.
const (
	flagCompressed = 0x01
	flagEnd        = 0x02
)

const envelopeHead = 5

// openEnvelope begins an envelope of unknown length; pass at to closeEnvelope.
func openEnvelope(dst []byte) (_ []byte, at int) {
	return append(dst, 0, 0, 0, 0, 0), len(dst)
}

// closeEnvelope fills in the head of the envelope that began at at.
func closeEnvelope(dst []byte, at int, flags byte) []byte {
	dst[at] = flags
	binary.BigEndian.PutUint32(dst[at+1:], uint32(len(dst)-at-envelopeHead))
	return dst
}

// envelopes reads the messages of a request. max limits the size of a message, both as
// sent and decompressed.
type envelopes struct {
	r    io.Reader
	gzip bool // the client declared gzip as its encoding
	max  int
}

// next returns the next message, or io.EOF after the last.
func (e *envelopes) next() ([]byte, error) {
	var head [envelopeHead]byte
	if n, err := io.ReadFull(e.r, head[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fail(CodeInvalid, "protocol error: incomplete envelope: %d of %d bytes of its head", n, envelopeHead)
	}
	flags, size := head[0], binary.BigEndian.Uint32(head[1:])
	switch {
	case flags&flagEnd != 0:
		return nil, fail(CodeInvalid, "protocol error: a request has no end-of-stream envelope")
	case flags&^flagCompressed != 0:
		return nil, fail(CodeInvalid, "protocol error: invalid envelope flags %#02x", flags)
	case flags&flagCompressed != 0 && !e.gzip:
		return nil, fail(CodeInternal, "protocol error: sent compressed message without compression support")
	case int64(size) > int64(e.max):
		return nil, fail(CodeExhausted, "message of %d bytes is larger than the limit of %d", size, e.max)
	}
	msg, err := io.ReadAll(io.LimitReader(e.r, int64(size)))
	if err != nil || len(msg) < int(size) {
		return nil, fail(CodeInvalid, "protocol error: promised %d bytes in envelope, got %d", size, len(msg))
	}
	if flags&flagCompressed != 0 && size > 0 {
		return gunzip(msg, e.max)
	}
	return msg, nil
}

// only returns the message of a request that must have exactly one.
func (e *envelopes) only() ([]byte, error) {
	msg, err := e.next()
	if errors.Is(err, io.EOF) {
		return nil, fail(CodeUnimpl, "unary request has zero messages")
	}
	if err != nil {
		return nil, err
	}
	if _, err := e.next(); err == nil {
		return nil, fail(CodeUnimpl, "unary request has multiple messages")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return msg, nil
}
