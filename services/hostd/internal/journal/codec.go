package journal

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
)

// Fields of a Created. A number is field 1 of its value.
const (
	fieldDriver     = 1
	fieldInstance   = 2
	fieldTree       = 3 // one per tree
	fieldTreesKnown = 4 // Trees is not nil

	fieldNumber = 1
)

func (m *Created) append(dst []byte) []byte {
	dst = field.AppendString(dst, fieldDriver, m.Driver)
	dst = field.AppendString(dst, fieldInstance, string(m.Instance))
	for _, id := range m.Trees {
		dst = field.PutString(dst, fieldTree, string(id))
	}
	return field.AppendBool(dst, fieldTreesKnown, m.Trees != nil)
}

func parseCreated(b []byte) (Created, error) {
	var m Created
	err := field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		switch num {
		case fieldDriver:
			m.Driver = string(v)
		case fieldInstance:
			m.Instance = sandbox.ID(v)
		case fieldTree:
			m.Trees = append(m.Trees, template.ID(v))
		case fieldTreesKnown:
			if u != 0 && m.Trees == nil {
				m.Trees = Trees{}
			}
		}
		return nil
	})
	return m, err
}

func appendNumber(dst []byte, n uint64) []byte { return field.AppendUint(dst, fieldNumber, n) }

// parseNumber returns a number; 0 if it is missing or damaged.
func parseNumber(b []byte) (n uint64) {
	err := field.Each(b, func(num protowire.Number, u uint64, _ []byte) error {
		if num == fieldNumber {
			n = u
		}
		return nil
	})
	if err != nil {
		return 0
	}
	return n
}
