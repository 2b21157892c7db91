package part

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

func packer(t testing.TB) *Packer {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestPartsArePackedAndChecked(t *testing.T) {
	p := packer(t)
	for _, size := range []int{0, 1, 1000, template.PartSize} {
		data := bytes.Repeat([]byte("a"), size)
		packed, sum := p.Pack(data), template.SumOf(data)
		if got, err := p.Unpack(packed, sum, size); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %d, %v", size, len(got), err)
		}
		if err := p.Check(packed, sum); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, err := p.Unpack(packed, sum, size+1); !kind.Is(err, kind.Invalid) {
			t.Errorf("%d bytes of another size: %v", size, err)
		}
		if err := p.Check(packed, template.SumOf([]byte("x"))); !kind.Is(err, kind.Invalid) {
			t.Errorf("%d bytes of another sum: %v", size, err)
		}
	}
}

func TestBombsAreBounded(t *testing.T) {
	p := packer(t)
	bomb := p.Pack(make([]byte, 64*template.PartSize))
	if len(bomb) > 1<<20 {
		t.Fatalf("the bomb is too large: %d bytes", len(bomb))
	}
	if err := p.Check(bomb, template.SumOf(nil)); !kind.Is(err, kind.Invalid) {
		t.Errorf("a bomb: %v", err)
	}
	if len(p.buf) > template.PartSize+1 {
		t.Errorf("the buffer has %d bytes", len(p.buf))
	}
}

func FuzzUnpack(f *testing.F) {
	p := packer(f)
	f.Add(p.Pack([]byte("hello")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if data, err := p.Unpack(b, template.SumOf([]byte("hello")), 5); err == nil && string(data) != "hello" {
			t.Errorf("%x gave %q", b, data)
		}
	})
}
