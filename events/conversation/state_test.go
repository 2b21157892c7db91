package conversation

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
)

var now = time.Unix(1_800_000_000, 0)

// after returns the state of a conversation after events.
func after(t *testing.T, events ...Body) State {
	t.Helper()
	s := State{ID: "ses_1"}
	for i, b := range events {
		var err error
		if s, err = s.Apply(b, now.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var (
	opened    = Opened{Owner: "alice", Terms: Terms{Template: "standard"}, Sandbox: "i1", Token: Token{Nonce: "n1"}, Gateway: "g1"}
	served    = Served{Runtime: "p-i1"}
	ended     = Ended{Completed}
	claimed   = Claimed{Sandbox: "i2", Token: Token{Nonce: "n2"}, Gateway: "g2", Previous: Completed}
	takenOver = TakenOver{"g3", Idle}
	replaced  = Configured{Generations: map[string]string{"b": "g2"}, Keys: []string{"A"}}
	announced = Announced{ID: "a", Reason: "user_request"}
	delivered = Delivered{ID: "a"}
)

func TestWhatCanHappen(t *testing.T) {
	starting, serving, over := []Body{opened}, []Body{opened, served}, []Body{opened, served, ended}
	all := []Body{opened, claimed, takenOver, served, replaced, ended, announced, delivered}
	for name, tt := range map[string]struct {
		past []Body
		may  map[string]Phase
	}{
		"nothing":   {nil, map[string]Phase{"opened": Starting}},
		"starting":  {starting, map[string]Phase{"served": Serving, "ended": Over, "taken_over": Starting}},
		"serving":   {serving, map[string]Phase{"claimed": Starting, "configured": Serving, "ended": Over, "announced": Serving}},
		"announced": {append(serving, announced), map[string]Phase{"claimed": Starting, "configured": Serving, "ended": Over, "announced": Serving, "delivered": Serving}},
		"over":      {over, map[string]Phase{"claimed": Starting}},
	} {
		s := after(t, tt.past...)
		for _, b := range all {
			to, err := s.Apply(b, now)
			want, may := tt.may[b.kind()]
			if (err == nil) != may || err == nil && to.Phase != want || err != nil && (!kind.Is(err, kind.Invalid) || to.Phase != s.Phase) {
				t.Errorf("%s, %s: phase %d, %v; want %d", name, b.kind(), to.Phase, err, want)
			}
		}
	}
}

// The secrets of a runtime are those that it was served with, until they are replaced, and end with it.
func TestConfigurations(t *testing.T) {
	first := Served{Runtime: "p-i1", Generations: map[string]string{"b": "g1"}}
	s := after(t, opened, first)
	if s.Config.Number != 0 || s.Config.Generations["b"] != "g1" || s.Config.Keys != nil {
		t.Errorf("served: %+v", s.Config)
	}
	s = after(t, opened, first, replaced, replaced, announced)
	if s.Config.Number != 2 || s.Config.Generations["b"] != "g2" || len(s.Config.Keys) != 1 {
		t.Errorf("replaced: %+v", s.Config)
	}
	s = after(t, opened, first, replaced, claimed)
	if s.Config.Number != 0 || s.Config.Generations != nil || s.Config.Keys != nil {
		t.Errorf("claimed: %+v", s.Config)
	}
}

// A resume keeps the terms, and nothing of the last sandbox.
func TestResume(t *testing.T) {
	s := after(t, opened, served, announced, ended, claimed)
	if s.Generation != 2 || s.Sandbox != "i2" || s.Runtime != "" || s.Token.Nonce != "n2" || s.Claim.Gateway != "g2" || s.Notice != (Notice{}) || s.Status != "" || !s.Ended.IsZero() {
		t.Errorf("%+v", s)
	}
	if s.Terms.Template != "standard" || s.Owner != "alice" || s.Previous != Completed || !s.Created.Equal(now) {
		t.Errorf("not kept: %+v", s)
	}
}

// A resume has the result of the last one for a while, and no longer than its sandbox.
func TestRepeatedResume(t *testing.T) {
	resumed := []Body{opened, served, claimed, served} // served again 3 s later
	for name, tt := range map[string]struct {
		past []Body
		at   time.Duration
		want bool
	}{
		"at once":              {resumed, 3 * time.Second, true},
		"taken over":           {[]Body{opened, takenOver, served}, time.Second, true},
		"just in time":         {resumed, Window + 3*time.Second - 1, true},
		"too late":             {resumed, Window + 3*time.Second, false},
		"after the end":        {append(resumed, ended), 4 * time.Second, false},
		"not resumed yet":      {resumed[:2], 2 * time.Second, false},
		"while it is resuming": {resumed[:3], 2 * time.Second, false},
	} {
		s := after(t, tt.past...)
		if got := s.Repeats(now.Add(tt.at)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestIDs(t *testing.T) {
	if id := NewID(); id == NewID() {
		t.Error("two equal ids")
	} else if got, err := ParseID(string(id)); got != id || err != nil {
		t.Error(id, err)
	}
	for _, s := range []string{"", "ses_", "ses_abc", "sbx_aaaaaaaaaaaaaaaaaaaaaaaa", "ses_aaaaaaaaaaaaaaaaaaaaaaaA", "ses_aaaaaaaaaaaaaaaaaaaaaaa.", "ses_aaaaaaaaaaaaaaaaaaaaaaaaa"} {
		if _, err := ParseID(s); !kind.Is(err, kind.NotFound) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
