package part

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// Cutter cuts a tar that is written to it into parts.
type Cutter struct {
	Flush func([]byte) error // takes a part, whose bytes are its own; required
	N     int64              // bytes that were written

	buf []byte
}

// Write is io.Writer.Write. Invalid past template.MaxTar.
func (c *Cutter) Write(p []byte) (int, error) {
	wrote := len(p)
	for len(p) > 0 {
		if c.buf == nil {
			c.buf = make([]byte, 0, template.PartSize)
		}
		n := min(len(p), cap(c.buf)-len(c.buf))
		c.buf, p = append(c.buf, p[:n]...), p[n:]
		if c.N += int64(n); c.N > template.MaxTar {
			return 0, kind.Newf(kind.Invalid, "cut", "", "the files have more than %d MiB", int64(template.MaxTar)>>20)
		}
		if len(c.buf) == cap(c.buf) {
			if err := c.End(); err != nil {
				return 0, err
			}
		}
	}
	return wrote, nil
}

// End gives the last part away.
func (c *Cutter) End() error {
	if len(c.buf) == 0 {
		return nil
	}
	b := c.buf
	c.buf = nil
	return c.Flush(b)
}
