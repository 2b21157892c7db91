//go:build linux

package files

import (
	"bytes"
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// cutStream is a stream that breaks in the middle of an upload.
type cutStream struct {
	io.Reader
	bytes.Buffer
	err error
}

var errCut = kind.New(kind.Canceled, "stream", "", "the client left")

func (c *cutStream) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if isEOF(err) {
		err = errCut
	}
	return n, err
}
func (*cutStream) Accept()                          {}
func (*cutStream) Close() error                     { return nil }
func (*cutStream) AfterBreak(func()) func()         { return func() {} }
func (*cutStream) SetWriteDeadline(time.Time) error { return nil }
func (c *cutStream) Abort(e error)                  { c.err = e }
