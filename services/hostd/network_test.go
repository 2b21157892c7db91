package hostd

import (
	"testing"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/egress"
)

// What went out is told until the record has it: who tells may be overtaken. What was
// counted before the life began to look is kept.
func TestUseIsToldUntilTheRecordHasIt(t *testing.T) {
	server := egress.NewServer(egress.Config{})
	defer server.Close()
	h := &host{egress: server}
	s := sandbox.State{
		ID: "b", Phase: sandbox.PhaseRunning,
		Used: sandbox.NetworkUsed{Sent: 7, Received: 1, Link: sandbox.LinkUsed{Index: 3, Sent: 7, Received: 1}},
	}
	b := newBox(h, &s)
	if said := b.use(&s); len(said) != 0 {
		t.Errorf("told though nothing is new: %+v", said)
	}
	b.linkUsed(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 3, Sent: 9, Received: 1}})
	want := sandbox.NetworkUsed{Sent: 9, Received: 1, Link: sandbox.LinkUsed{Index: 3, Sent: 9, Received: 1}}
	for try := range 2 {
		if said := b.use(&s); len(said) != 1 || said[0] != want {
			t.Errorf("try %d: told %+v, want %+v", try, said, want)
		}
	}
	if s.Used = want; len(b.use(&s)) != 0 {
		t.Error("told what the record has")
	}
}

// An interface whose policy was narrowed while no hostd was there is counted to its end.
func TestUseIsCountedBeforeThePolicyIsInForce(t *testing.T) {
	server := egress.NewServer(egress.Config{})
	defer server.Close()
	s := sandbox.State{ID: "b", Phase: sandbox.PhaseRunning}
	b := newBox(&host{}, &s)
	b.linkUsed(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 1, Sent: 5}}) // as unplug does
	b.h.egress = server
	b.tell(&s)
	if said := b.use(&s); len(said) != 1 || said[0].(sandbox.NetworkUsed).Sent != 5 {
		t.Errorf("told %+v", said)
	}
}
