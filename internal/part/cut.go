package part

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// Cutter is an io.Writer that splits a tar into parts.
type Cutter struct {
	Flush func([]byte) error // receives each part and owns its bytes; required
	N     int64              // number of bytes written

	buf []byte
}

// Write implements io.Writer. It returns Invalid beyond template.MaxTar bytes.
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

// End flushes the last part.
func (c *Cutter) End() error {
	if len(c.buf) == 0 {
		return nil
	}
	b := c.buf
	c.buf = nil
	return c.Flush(b)
}
