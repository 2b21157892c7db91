package attachment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
)

func TestDue(t *testing.T) {
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
		policy attachment.Policy
		holder attachment.Holder
		want   time.Time // zero: it does not end by itself
		free   bool
	}{
		{"has a client", attached, attachment.Policy{}, attachment.Holder{}, time.Time{}, false},
		{"its gateway is gone", attached, attachment.Policy{}, gone, after(85), true},
		{"its gateway was gone before", attached, attachment.Policy{TTL: time.Second}, attachment.Holder{Gone: true, Since: after(-5)}, after(1), true},
		{"its gateway is gone, and it ends at once", attached, attachment.Policy{Terminate: true}, gone, after(5), true},
		{"waits for its client", detached, attachment.Policy{}, attachment.Holder{}, after(80), true},
		{"waits as long as it says", detached, attachment.Policy{TTL: time.Hour}, gone, after(3600), true},
		{"waits without limit", detached, attachment.Policy{TTL: -1}, gone, time.Time{}, true},
		{"ends at once", detached, attachment.Policy{Terminate: true, TTL: -1}, attachment.Holder{}, at, true},
		{"is being ended", attachment.Ending, attachment.Policy{TTL: -1}, attachment.Holder{}, after(30), false},
		{"has ended", attachment.Ended, attachment.Policy{}, gone, time.Time{}, false},
	} {
		s := attachment.Session{Phase: tt.phase, Policy: tt.policy, Since: at}
		if got, ok := s.Due(tt.holder); !got.Equal(tt.want) || ok != !tt.want.IsZero() {
			t.Errorf("%s: Due = %v, %v; want %v", tt.name, got, ok, tt.want)
		}
		if _, free := s.Free(tt.holder); free != tt.free {
			t.Errorf("%s: Free = %v, want %v", tt.name, free, tt.free)
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
