package field_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/events/field"
)

// seen is a field as passed by Each.
type seen struct {
	num protowire.Number
	u   uint64
	v   string
}

func each(b []byte) (all []seen, err error) {
	err = field.Each(b, func(num protowire.Number, u uint64, v []byte) error {
		all = append(all, seen{num, u, string(v)})
		return nil
	})
	return all, err
}

func TestZeroValuesAreOmitted(t *testing.T) {
	b := field.AppendUint(nil, 1, 0)
	b = field.AppendBool(b, 2, false)
	b = field.AppendString(b, 3, "")
	if b = field.AppendBytes(b, 4, nil); len(b) > 0 {
		t.Errorf("% x", b)
	}
	b = field.PutString(nil, 1, "")
	b = field.PutBytes(b, 2, nil)
	b = field.PutMessage(b, 3, func(dst []byte) []byte { return dst })
	if all, err := each(b); len(all) != 3 || err != nil {
		t.Errorf("put: %v, %v", all, err)
	}
}

// A message's length may take any number of bytes.
func TestMessagesOfAnySize(t *testing.T) {
	for _, n := range []int{0, 1, 0x7d, 0x7e, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 21} {
		text := strings.Repeat("x", n)
		b := field.PutMessage([]byte{8, 1}, 2, func(dst []byte) []byte { return append(dst, text...) })
		all, err := each(field.AppendBool(b, 3, true))
		if err != nil || len(all) != 3 || all[1].v != text || all[2] != (seen{3, 1, ""}) {
			t.Errorf("%d bytes: %d fields, %v", n, len(all), err)
		}
	}
}

func TestFixedNumbers(t *testing.T) {
	b := protowire.AppendFixed64(protowire.AppendTag(nil, 9, protowire.Fixed64Type), 7)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 10, protowire.Fixed32Type), 7)
	want := []seen{{9, 7, ""}, {1, 5, ""}} // 32 bits are skipped
	if all, err := each(field.AppendUint(b, 1, 5)); err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, %v", all, err)
	}
}

// Any input is decoded or rejected, and decoded fields survive a round trip.
func FuzzEach(f *testing.F) {
	f.Add(field.AppendString(field.AppendUint(nil, 1, 300), 2, "text"))
	f.Add([]byte{0xff, 0xff})
	f.Add([]byte{0x12, 0x7f, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := each(b)
		if err != nil && !errors.Is(err, field.ErrMalformed) {
			t.Fatal(err)
		}
		var again []byte
		for _, s := range all {
			if s.v != "" {
				again = field.AppendString(again, s.num, s.v)
			} else {
				again = field.AppendUint(again, s.num, s.u)
			}
		}
		all = slices.DeleteFunc(all, func(s seen) bool { return s.u == 0 && s.v == "" })
		if back, err := each(again); err != nil || !slices.Equal(back, all) {
			t.Errorf("%v, %v; want %v", back, err, all)
		}
	})
}
