package attachment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
)

func TestFree(t *testing.T) {
	at := time.Unix(1000, 0)
	after := func(s int) time.Time { return at.Add(time.Duration(s) * time.Second) }
	gone := attachment.Holder{Gone: true, Since: after(5)}
	const (
		attached = attachment.Attached
		detached = attachment.Detached
	)
	for _, tt := range []struct {
		name   string
		phase  attachment.Phase
		holder attachment.Holder
		want   time.Time // zero: it has a client, or may have one
	}{
		{"has a client", attached, attachment.Holder{}, time.Time{}},
		{"its gateway is gone", attached, gone, after(5)},
		{"its gateway was gone before", attached, attachment.Holder{Gone: true, Since: after(-5)}, at},
		{"waits for its client", detached, attachment.Holder{}, at},
		{"waits, and its gateway is gone", detached, gone, at},
		{"is being ended", attachment.Ending, attachment.Holder{}, time.Time{}},
		{"has ended", attachment.Ended, gone, time.Time{}},
	} {
		s := attachment.Session{Phase: tt.phase, Since: at}
		if got, free := s.Free(tt.holder); !got.Equal(tt.want) || free != !tt.want.IsZero() {
			t.Errorf("%s: Free = %v, %v; want %v", tt.name, got, free, tt.want)
		}
	}
}

func TestParseID(t *testing.T) {
	if id := attachment.NewID(); len(id) < 20 {
		t.Errorf("%q can be guessed", id)
	} else if got, err := attachment.ParseID(id); err != nil || got != id {
		t.Errorf("%q, %v", got, err)
	}
	for _, id := range []string{"", "*", ">", "A.B", "a", "A B", "A\n", strings.Repeat("A", 65)} {
		if got, err := attachment.ParseID(id); !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %q, %v", id, got, err)
		}
	}
}
