package session

import (
	"testing"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/process"
)

// Commands wait in one queue until the shim's processes are known and the start of their process
// was sent; then they are sent in their order. Those of a process that never starts are refused.
func TestCommandsWaitForTheShimAndForTheirStart(t *testing.T) {
	b := bare(t.Context(), nil)
	p, other := b.known(), b.known()
	var rev uint64
	deliver := func(to *proc) {
		rev++
		b.commands.Begin(rev)
		b.Deliver(command.Command{ID: string(process.NewID(b.cfg.ID)), Process: to.id, Rev: rev, Body: command.Signal{Signal: 15}})
	}
	check := func(when string, sent int) {
		t.Helper()
		if len(b.pending) != sent {
			t.Errorf("%s: %d of %d commands were sent, want %d", when, len(b.pending), rev, sent)
		}
	}
	deliver(p)
	deliver(other)
	b.queue.start(p)
	check("while the shim's processes are unknown", 0)
	b.queue.openUp()
	deliver(other)
	check("before the other process was started", 1)
	other.close()
	check("after the other process ended", 1)
	deliver(p)
	check("after the start", 2)
	b.accepted(1)
	b.accepted(4)
	if b.commands.Position() != rev {
		t.Errorf("the cursor is at %d of %d: the commands of the process that ended were not refused", b.commands.Position(), rev)
	}
}
