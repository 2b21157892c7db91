package file

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// Found is a part of the response to a walk: an entry, a directory that cannot be read, or the
// report that the walk was cut short, which has no path.
type Found struct {
	Path      string
	Dir       bool   // a directory; otherwise a regular file
	Failed    string // why the directory cannot be read
	Truncated bool   // a limit was reached: entries are missing
}

// Append appends the encoding of f.
func (f *Found) Append(b []byte) []byte {
	b = field.AppendString(b, 1, f.Path)
	b = field.AppendBool(b, 2, f.Dir)
	b = field.AppendString(b, 3, f.Failed)
	return field.AppendBool(b, 4, f.Truncated)
}

// ParseFound decodes the result of Append.
func ParseFound(b []byte) (Found, error) {
	var f Found
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			f.Path = string(v)
		case 2:
			f.Dir = u == 1
		case 3:
			f.Failed = string(v)
		case 4:
			f.Truncated = u == 1
		}
		return nil
	})
	if err != nil {
		return f, ErrMalformed
	}
	return f, nil
}
