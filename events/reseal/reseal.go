package reseal

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/seal"
)

// Values are the sealed values in the log. Its methods may be called concurrently.
type Values struct{ conn *store.Conn }

// New returns the values in the log.
func New(conn *store.Conn) *Values { return &Values{conn} }

// Progress is the progress of a pass over all values.
type Progress struct {
	Resealed uint64 // values that were sealed again
	Left     uint64 // values that were not; after a pass: those that cannot be opened
}

// Reseal seals all values again that the ring's current data key did not seal. It continues after
// a value that cannot be opened, because it is damaged or its key was removed, and returns the
// first such error at the end. After another error the pass is incomplete.
//
// It calls report after each value; an error of report ends the pass.
func (v *Values) Reseal(ctx context.Context, ring *seal.Ring, report func(Progress) error) (Progress, error) {
	p := pass{conn: v.conn, ring: ring, report: report}
	for _, visit := range []visitor{p.count, p.value} {
		for i := range kinds {
			if err := p.visit(ctx, &kinds[i], visit); err != nil {
				return p.Progress, err
			}
		}
	}
	return p.Progress, p.unreadable
}

type pass struct {
	Progress
	conn       *store.Conn
	ring       *seal.Ring
	report     func(Progress) error
	unreadable error // of the first value that cannot be opened
}

type visitor func(context.Context, *kindOf, store.Message) error

// visit visits all messages of a kind.
func (p *pass) visit(ctx context.Context, k *kindOf, do visitor) error {
	for next := uint64(1); ; {
		msgs, err := p.conn.GetFrom(ctx, k.stream, k.subject, next, store.BatchSize)
		if err != nil {
			return store.Unavailable("seal again", k.stream, err)
		}
		if len(msgs) == 0 {
			return nil
		}
		for _, m := range msgs {
			next = m.Seq + 1
			if err := do(ctx, k, m); err != nil {
				return err
			}
		}
	}
}

// count counts the messages whose values are to be sealed again.
func (p *pass) count(_ context.Context, k *kindOf, m store.Message) error {
	x, err := k.parse(m.Subject, m.Data)
	if err != nil || !p.ring.Current(seal.Text(*x.sealed)) {
		p.Left++
	}
	return nil
}

// value seals the value of one message again, unless a newer message of its subject counts.
func (p *pass) value(ctx context.Context, k *kindOf, m store.Message) error {
	x, err := k.parse(m.Subject, m.Data)
	if err != nil {
		p.skip(kind.Newf(kind.Internal, "seal again", m.Subject, "the message cannot be decoded: %v", err))
		return nil
	}
	old := seal.Text(*x.sealed)
	if p.ring.Current(old) {
		return nil
	}
	again, err := p.ring.Reseal(x.at, old)
	switch {
	case kind.Is(err, kind.Internal): // damaged, or its key was removed
		return p.skipUnlessReplaced(ctx, k, m, err)
	case err != nil:
		return err
	}
	*x.sealed = []byte(again)
	data, err := proto.Marshal(x.in)
	if err != nil {
		return kind.Wrap(kind.Internal, "seal again", m.Subject, err)
	}
	_, err = p.conn.Put(ctx, k.stream, m.Subject, m.Seq, data)
	replaced := kind.Is(err, kind.Conflict)
	if err != nil && !replaced {
		return err
	}
	if err := p.removeOlder(ctx, k, m.Subject); err != nil {
		return err
	}
	if !replaced {
		p.Resealed++
	}
	return p.settle()
}

// settle reports that a message needs nothing any more.
func (p *pass) settle() error {
	p.Left -= min(p.Left, 1) // values that are stored meanwhile were not counted
	return p.report(p.Progress)
}

// removeOlder removes all messages of a subject but the last, in a stream that keeps them.
func (p *pass) removeOlder(ctx context.Context, k *kindOf, subject string) error {
	if k.stream != streams.Accounts {
		return nil
	}
	s, err := p.conn.Stream(ctx, k.stream)
	if err == nil {
		err = s.PurgeButLast(ctx, subject)
	}
	return store.Unavailable("remove sealed values", k.stream, err)
}

// skipUnlessReplaced skips a value that cannot be opened, if its message is the last of its
// subject.
func (p *pass) skipUnlessReplaced(ctx context.Context, k *kindOf, m store.Message, why error) error {
	last, ok, err := p.conn.LastOf(ctx, k.stream, m.Subject)
	switch {
	case err != nil:
		return err
	case ok && last.Seq == m.Seq:
		p.skip(why)
		return nil
	}
	if err := p.removeOlder(ctx, k, m.Subject); err != nil {
		return err
	}
	return p.settle()
}

func (p *pass) skip(err error) {
	if p.unreadable == nil {
		p.unreadable = err
	}
}
