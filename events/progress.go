package events

import (
	"context"
	"sync"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/internal/waiting"
)

// progress is how far a view has folded its streams. All parts of a view share it: its lock
// guards them, and its callers wait for their changes.
type progress struct {
	l     *Log
	folds []fold // set before the view is used

	mu          sync.Mutex
	applied     map[string]uint64 // stream -> stream sequence
	changed     chan struct{}     // closed and replaced at every change
	err         error             // why the view is no longer kept up to date
	watchers    map[chan struct{}]struct{}
	nextBarrier *syncBarrier // requested but not begun; nil: none requested

	barrierMu sync.Mutex // held by the running barrier; taken before mu
}

// fold is a stream from which a view is folded, the function that applies a message, with
// the view locked, and whether Changes reports it.
type fold struct {
	stream string
	apply  func(store.Message) error
	notify bool
}

func newProgress(l *Log) *progress {
	return &progress{
		l:        l,
		applied:  make(map[string]uint64),
		changed:  make(chan struct{}),
		watchers: make(map[chan struct{}]struct{}),
	}
}

// run applies a stream's messages as they arrive.
func (p *progress) run(ctx context.Context, f *store.Feed, to fold) {
	defer f.Close()
	for {
		msgs, err := f.Next(ctx, nil)
		p.mu.Lock()
		if err != nil {
			p.err = err
		}
		for _, m := range msgs {
			if err := to.apply(m); err != nil {
				p.l.conn.Log().Error("apply message failed", "subject", m.Subject, "rev", m.Seq, "err", err)
			}
			p.applied[to.stream] = m.Seq
		}
		p.announce(to.notify || err != nil)
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// announce wakes waiting callers and, with notify, the receivers of Changes.
func (p *progress) announce(notify bool) {
	close(p.changed)
	p.changed = make(chan struct{})
	if !notify {
		return
	}
	for ch := range p.watchers {
		waiting.Notify(ch)
	}
}

// Changes returns a channel that receives a value after each change except of processes,
// which change a hundred times as often and need no reaction. It buffers one value: a slow
// receiver sees one for many changes. Call stop to end it.
func (p *progress) Changes() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[ch] = struct{}{}
	return ch, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, ch)
	}
}

// wait waits until done returns true; done runs with the view locked.
func (p *progress) wait(ctx context.Context, done func() bool) error {
	p.mu.Lock()
	for !done() {
		if err := p.err; err != nil {
			p.mu.Unlock()
			return store.Unavailable("view", "", err)
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		p.mu.Lock()
	}
	p.mu.Unlock()
	return nil
}

// SandboxesRev returns the stream sequence up to which the view has folded all sandboxes'
// records. Later reads from the view are at least as new.
func (p *progress) SandboxesRev() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applied[streams.Sandboxes]
}
