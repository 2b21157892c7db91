package file

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// HandleOp is what a HandleCall does. The numbers are sent and must not change.
type HandleOp uint8

// The operations of a handle.
const (
	HandleOpen  HandleOp = 1 // open a regular file, or with Replace truncate or create one
	HandleRead  HandleOp = 2 // read Length bytes at Offset, or fewer at the end of the file
	HandleWrite HandleOp = 3 // write the Length bytes that follow at Offset
	HandleClose HandleOp = 4 // close it; an unknown handle counts as closed
)

// Limits of handles.
const (
	MaxHandles = 128     // open on one stream
	MaxBlock   = 1 << 20 // bytes of a read or a write
)

// HandleCall is a call on the stream of an OpHandles.
type HandleCall struct {
	Op      HandleOp
	Handle  uint32 // chosen by the client
	Path    string // of HandleOpen
	Replace bool   // HandleOpen opens for writing
	Offset  int64
	Length  uint32
	Confine *process.Confinement // restricts HandleOpen; nil: not
}

// Append appends the encoding of c.
func (c *HandleCall) Append(b []byte) []byte {
	b = field.AppendUint(b, 1, uint64(c.Op))
	b = field.AppendUint(b, 2, uint64(c.Handle))
	b = field.AppendString(b, 3, c.Path)
	b = field.AppendBool(b, 4, c.Replace)
	b = field.AppendUint(b, 5, uint64(c.Offset))
	b = field.AppendUint(b, 6, uint64(c.Length))
	return appendConfinement(b, 7, c.Confine)
}

// Check validates a call. Its errors are Invalid.
func (c *HandleCall) Check() error {
	switch {
	case c.Op < HandleOpen || c.Op > HandleClose:
		return kind.Newf(kind.Unimplemented, "file", "", "operation %d of a handle", c.Op)
	case len(c.Path) > MaxPath || hasNUL(c.Path):
		return kind.New(kind.Invalid, "file", "", "path is too long or has a NUL byte")
	case c.Length > MaxBlock:
		return kind.Newf(kind.Invalid, "file", "", "block of %d bytes, the limit is %d", c.Length, MaxBlock)
	case c.Offset < 0 || c.Offset > math.MaxInt64-MaxBlock:
		return kind.New(kind.Invalid, "file", "", "offset is out of range")
	}
	if err := c.Confine.Check(); err != nil {
		return err
	}
	if c.Confine != nil && len(c.Append(nil)) > maxRequest {
		return kind.Newf(kind.Invalid, "file", "", "the request has more than %d bytes", maxRequest)
	}
	return nil
}

// ParseHandleCall decodes and validates a call.
func ParseHandleCall(b []byte) (HandleCall, error) {
	var c HandleCall
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) (err error) {
		switch num {
		case 1:
			c.Op = HandleOp(min(u, 255))
		case 2:
			c.Handle = uint32(min(u, math.MaxUint32))
		case 3:
			c.Path = string(v)
		case 4:
			c.Replace = u == 1
		case 5:
			c.Offset = int64(min(u, math.MaxInt64))
		case 6:
			c.Length = uint32(min(u, math.MaxUint32))
		case 7:
			c.Confine, err = process.ParseConfinement(v)
		}
		return err
	})
	if err != nil {
		return c, ErrMalformed
	}
	return c, c.Check()
}

// HandleResult is the result of a call. A failed call leaves the other handles as they were.
type HandleResult struct {
	Length uint32 // of a read: bytes that follow; fewer than requested at the end of the file
	Failed bool
	Kind   kind.Kind // of the error
	Msg    string
}

// Err returns the error of a failed call, or nil.
func (r *HandleResult) Err() error {
	if !r.Failed {
		return nil
	}
	return kind.New(r.Kind, "file", "", r.Msg)
}

// Append appends the encoding of r.
func (r *HandleResult) Append(b []byte) []byte {
	b = field.AppendUint(b, 1, uint64(r.Length))
	b = field.AppendBool(b, 2, r.Failed)
	b = field.AppendUint(b, 3, uint64(r.Kind))
	return field.AppendString(b, 4, r.Msg)
}

// ParseHandleResult decodes and validates a result.
func ParseHandleResult(b []byte) (HandleResult, error) {
	var r HandleResult
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			r.Length = uint32(min(u, math.MaxUint32))
		case 2:
			r.Failed = u == 1
		case 3:
			r.Kind = kind.Kind(min(u, math.MaxUint32))
		case 4:
			r.Msg = string(v)
		}
		return nil
	})
	if err != nil || r.Length > MaxBlock {
		return r, ErrMalformed
	}
	return r, nil
}
