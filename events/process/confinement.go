package process

import (
	"path"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/kind"
)

// Confinement restricts a process, and all that it starts, further than their sandbox does. A
// host that cannot enforce all of it does not start the process, with kind.Unimplemented.
//
// Paths are absolute and clean, and each stands for a file or for a directory with all below.
// The longest path that contains a file decides about it; what no path contains can neither be
// read nor written. Symbolic links are followed when the process starts.
type Confinement struct {
	Read    []string // may be read and executed
	Write   []string // may be read, executed and written
	Deny    []string // may be neither
	Network bool     // may use the network

	Optional []string // paths of the above that may be missing; any other missing path fails the start
}

// MaxConfinePaths is the maximum number of paths of a Confinement.
const MaxConfinePaths = 256

// Check validates c. Its errors are Invalid.
func (c *Confinement) Check() error {
	if c == nil {
		return nil
	}
	all := slices.Concat(c.Read, c.Write, c.Deny, c.Optional)
	if len(all) > MaxConfinePaths {
		return kind.Newf(kind.Invalid, "confine", "", "confinement with more than %d paths", MaxConfinePaths)
	}
	for _, p := range all {
		if !path.IsAbs(p) || path.Clean(p) != p || len(p) > MaxPath || hasNUL(p) {
			return kind.Newf(kind.Invalid, "confine", "", "path %.200q of the confinement must be absolute and clean", p)
		}
	}
	return nil
}

// Append appends the encoding of c.
func (c *Confinement) Append(dst []byte) []byte {
	for i, list := range [][]string{c.Read, c.Write, c.Deny} {
		for _, p := range list {
			dst = field.PutString(dst, protowire.Number(i+1), p)
		}
	}
	dst = field.AppendBool(dst, 4, c.Network)
	for _, p := range c.Optional {
		dst = field.PutString(dst, 5, p)
	}
	return dst
}

// ParseConfinement decodes the result of Append.
func ParseConfinement(b []byte) (*Confinement, error) {
	c := &Confinement{}
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case 1:
			c.Read = append(c.Read, string(v))
		case 2:
			c.Write = append(c.Write, string(v))
		case 3:
			c.Deny = append(c.Deny, string(v))
		case 4:
			c.Network = u != 0
		case 5:
			c.Optional = append(c.Optional, string(v))
		}
		return nil
	})
	return c, err
}
