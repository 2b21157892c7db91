package procs

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// keepOutcomes is the number of replies kept for repeated commands.
const keepOutcomes = 256

// Hostd is the connection of hostd.
type Hostd interface {
	// Send queues the frame that f appends, if hostd is connected.
	Send(f func(dst []byte) []byte)
	// SendSoon is Send for a frame that waits a moment for events.
	SendSoon(f func(dst []byte) []byte)
}

// outcomes holds the replies to the last commands, so that a command repeated after a
// restart of hostd gets the same reply.
type outcomes struct {
	ring [keepOutcomes]wire.Reply
	next int
}

func (o *outcomes) add(r wire.Reply) {
	o.ring[o.next] = r
	o.next = (o.next + 1) % keepOutcomes
}

func (o *outcomes) find(rev uint64) (wire.Reply, bool) {
	for i := range o.ring {
		if o.ring[i].Rev == rev {
			return o.ring[i], true
		}
	}
	return wire.Reply{}, false
}

// replies sends the outcomes of commands to hostd. Table.mu guards them.
type replies struct {
	hostd Hostd
	sent  outcomes
}

// again replies to a command that was taken before.
func (r *replies) again(rev uint64) {
	if out, ok := r.sent.find(rev); ok {
		r.post(&out)
		return
	}
	r.taken(rev)
}

// reply replies to a command.
func (r *replies) reply(out *wire.Reply) {
	r.sent.add(*out)
	r.post(out)
}

func (r *replies) post(out *wire.Reply) {
	r.hostd.Send(func(dst []byte) []byte { return wire.AppendReply(dst, out) })
}

func (r *replies) refuse(rev uint64, k kind.Kind, text string) {
	r.reply(&wire.Reply{Rev: rev, Kind: k, Error: text})
}

// taken reports to hostd that a command need not be sent again.
func (r *replies) taken(rev uint64) {
	r.hostd.Send(func(dst []byte) []byte { return wire.AppendTaken(dst, rev) })
}
