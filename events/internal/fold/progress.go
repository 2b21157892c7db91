package fold

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/internal/waiting"
)

// Progress is how far a view has folded its streams. All parts of a view share it: its lock
// guards them, and its callers wait for their changes. Its methods may be called concurrently.
// Before Start the view is empty, and Sync waits.
type Progress struct {
	conn *store.Conn

	// sources and barriers are set by Start, which then closes started.
	started  chan struct{}
	sources  []Source
	barriers map[string]*syncBarrier // by stream

	mu       sync.Mutex
	applied  map[string]uint64 // stream -> stream sequence
	changed  chan struct{}     // closed and replaced at every change
	err      error             // why the view is no longer kept up to date
	watchers map[chan struct{}]struct{}
}

// Source is a stream from which a view is folded, with the functions that the view calls for
// it. Apply and Expire are called with the view locked.
type Source struct {
	Stream string
	Apply  func(store.Message) error // applies a message
	Notify bool                      // whether Changes reports its messages
	// Restore fills the view from a snapshot before the first message is applied, and returns the
	// stream sequence of the last message that is in the snapshot; 0: the view is empty, as after
	// an error. It is called with the view unlocked. Nil: no snapshots.
	Restore func(context.Context) (upTo uint64, err error)
	Expire  func(now time.Time)                                // drops old documents from the view; nil: none
	Sweep   func(ctx context.Context, age time.Duration) error // removes old documents from the log; nil: none
}

// NewProgress returns the progress of a view without content.
func NewProgress(conn *store.Conn) *Progress {
	return &Progress{
		conn:     conn,
		started:  make(chan struct{}),
		barriers: make(map[string]*syncBarrier),
		applied:  make(map[string]uint64),
		changed:  make(chan struct{}),
		watchers: make(map[chan struct{}]struct{}),
	}
}

// Start follows the streams of all sources until ctx ends. It is called once.
func (p *Progress) Start(ctx context.Context, sources []Source) error {
	p.sources = sources
	for _, s := range sources {
		p.barriers[s.Stream] = &syncBarrier{}
	}
	close(p.started)
	for _, s := range sources {
		feed, err := p.conn.Follow(s.Stream, ">", 0)
		if err != nil {
			return store.Unavailable("open view", s.Stream, err)
		}
		go p.run(ctx, feed, s)
	}
	return nil
}

// Lock locks the view.
func (p *Progress) Lock() { p.mu.Lock() }

// Unlock unlocks the view.
func (p *Progress) Unlock() { p.mu.Unlock() }

// run applies a stream's messages as they arrive.
func (p *Progress) run(ctx context.Context, f *store.Feed, to Source) {
	defer f.Close()
	if to.Restore != nil {
		p.restore(ctx, f, to)
	}
	for {
		msgs, err := f.Next(ctx, nil)
		p.mu.Lock()
		if err != nil {
			p.err = err
		}
		for _, m := range msgs {
			if err := to.Apply(m); err != nil {
				p.conn.Log().Error("apply message failed", "subject", m.Subject, "rev", m.Seq, "err", err)
			}
			p.applied[to.Stream] = m.Seq
		}
		p.announce(to.Notify || err != nil)
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// restore makes a feed continue after the snapshot of a source, if there is one.
func (p *Progress) restore(ctx context.Context, f *store.Feed, to Source) {
	upTo, err := to.Restore(ctx)
	if err != nil && ctx.Err() == nil {
		p.conn.Log().Warn("restore snapshot failed", "stream", to.Stream, "err", err)
	}
	if upTo == 0 {
		return
	}
	f.SkipTo(upTo)
	p.mu.Lock()
	p.applied[to.Stream] = upTo
	p.announce(to.Notify)
	p.mu.Unlock()
}

// announce wakes waiting callers and, with notify, the receivers of Changes.
func (p *Progress) announce(notify bool) {
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
func (p *Progress) Changes() (changed <-chan struct{}, stop func()) {
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

// Wait waits until done returns true; done runs with the view locked.
func (p *Progress) Wait(ctx context.Context, done func() bool) error {
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

// Rev returns the stream sequence up to which the view has folded a stream. Later reads from
// the view are at least as new.
func (p *Progress) Rev(stream string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applied[stream]
}

// LockedRev is Rev for callers that have locked the view.
func (p *Progress) LockedRev(stream string) uint64 { return p.applied[stream] }
