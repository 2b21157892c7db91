package session

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

const (
	// resumeGrace is how long a resumed client may take between its first reads. Then it
	// receives new events of the processes that it did not read.
	resumeGrace = 2 * time.Second
	// recoveryHold is how long notifications wait after the first answer about a process, so
	// that the client has applied it.
	recoveryHold = 50 * time.Millisecond
	feedBackoff  = 100 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// feeds are the processes whose events are pushed on a connection.
type feeds struct {
	resumed bool // set before the first request

	mu        sync.Mutex
	all       map[string]*feed
	recovered map[string]bool // processes of a resumed session that were read
	lastRead  time.Time       // of the recovery
}

// feed pushes the events of one process.
type feed struct {
	proc Process
	stop context.CancelFunc
}

// known returns a process that is being followed.
func (f *feeds) known(name string) (Process, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := f.all[name]; ok {
		return at.proc, true
	}
	return Process{}, false
}

// learn makes a process known before it is followed.
func (f *feeds) learn(proc Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(&feed{proc, func() {}})
}

// put sets the feed of a process and stops the one before. f is locked.
func (f *feeds) put(at *feed) {
	if before := f.all[at.proc.Name]; before != nil {
		before.stop()
	}
	if f.all == nil {
		f.all = make(map[string]*feed)
	}
	f.all[at.proc.Name] = at
}

// recover reports whether a read is the first of a process after a resume: its events are
// then pushed from the end of the page on.
func (f *feeds) recover(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.resumed || f.recovered[name] {
		return false
	}
	f.mark(name)
	f.lastRead = time.Now()
	return true
}

// mark records that the client has a process's events so far. f is locked.
func (f *feeds) mark(name string) {
	if f.recovered == nil {
		f.recovered = make(map[string]bool)
	}
	f.recovered[name] = true
}

// unmark undoes mark.
func (f *feeds) unmark(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.recovered, name)
}

// add registers the feed of a process in place of an earlier one, and returns its context and
// a function that ends it.
func (f *feeds) add(ctx context.Context, proc Process) (context.Context, func()) {
	ctx, stop := context.WithCancel(ctx)
	at := &feed{proc, stop}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(at)
	if f.resumed {
		f.mark(proc.Name) // a process that was started on this connection needs no recovery
	}
	return ctx, func() {
		stop()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.all[proc.Name] == at {
			delete(f.all, proc.Name)
		}
	}
}

// unread returns whether a process has neither been read nor followed, and how long ago the
// last one was read.
func (f *feeds) unread(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.recovered[name]
}

func (f *feeds) sinceRead() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.lastRead)
}

// follow pushes the events of a process: those that were read already, and those of src, which
// it closes.
func (c *conn) follow(ctx context.Context, proc Process, src Source, first []process.Event, tr translator) {
	ctx, end := c.feeds.add(ctx, proc)
	c.spawn("codex output", func() {
		defer end()
		c.push(ctx, proc, src, first, tr)
	})
}

// push pushes events until the record or ctx ends.
func (c *conn) push(ctx context.Context, proc Process, src Source, first []process.Event, tr translator) {
	p := &push{c: c, proc: proc, src: src, tr: tr, id: jsonrpc.AppendString(nil, proc.Name)}
	defer p.close()
	p.run(ctx, first)
}

// followFrom pushes the events of a process from a seq on. exited is whether its record is
// known to have an Exited. The first notification waits for hold.
func (c *conn) followFrom(ctx context.Context, proc Process, next uint64, exited bool, hold time.Duration) {
	ctx, end := c.feeds.add(ctx, proc)
	c.spawn("codex output", func() {
		defer end()
		if waiting.Sleep(ctx, hold) {
			c.push(ctx, proc, nil, nil, translator{next: next, exited: exited, tty: proc.TTY})
		}
	})
}

// followUnread pushes the new events of the processes that a resumed client does not read.
func (c *conn) followUnread(ctx context.Context) {
	type start struct {
		proc Process
		tail Tail
	}
	var all []start
	for n := 0; ; n++ {
		procs, err := c.services.Processes.Running(ctx)
		if err == nil {
			for _, p := range procs {
				tail, err := c.services.Records.Tail(ctx, p.ID)
				if err == nil {
					all = append(all, start{p, tail})
				}
			}
			break
		}
		if !waiting.Sleep(ctx, waiting.Delay(n, feedBackoff, maxBackoff)) {
			return
		}
	}
	for quiet := resumeGrace; quiet > 0; quiet = resumeGrace - c.feeds.sinceRead() {
		if !waiting.Sleep(ctx, quiet) {
			return
		}
	}
	for _, s := range all {
		if c.feeds.unread(s.proc.Name) {
			c.followFrom(ctx, s.proc, max(s.tail.Last, unseen)-unseen+1, s.tail.Exited != nil, 0)
		}
	}
}

// push is the work of a feed.
type push struct {
	c      *conn
	proc   Process
	src    Source // nil: to be opened
	tr     translator
	id     []byte
	items  []item
	closed bool // the close was sent
}

func (p *push) close() {
	if p.src != nil {
		p.src.Close()
	}
}

// run pushes events until the record or ctx ends. A record that cannot be read is opened
// again: the client must not miss an event.
func (p *push) run(ctx context.Context, batch []process.Event) {
	for n := 0; ctx.Err() == nil; {
		if p.send(ctx, batch) != nil || p.closed {
			return
		}
		var err error
		if batch, err = p.next(ctx); err == nil {
			n = 0
			continue
		}
		if errors.Is(err, io.EOF) || kind.Is(err, kind.Invalid) { // Invalid: behind the end
			if p.send(ctx, batch) == nil && !p.closed {
				p.end(ctx)
			}
			return
		}
		if n++; n == 1 && ctx.Err() == nil {
			p.c.cfg.Log.Warn("read record failed", "process", p.proc.ID, "err", err)
		}
		if p.src != nil && len(batch) == 0 {
			p.src.Close()
			p.src = nil
		}
		if !waiting.Sleep(ctx, waiting.Delay(n, feedBackoff, maxBackoff)) {
			return
		}
	}
}

// next reads the next events.
func (p *push) next(ctx context.Context) ([]process.Event, error) {
	if p.src == nil {
		src, err := p.c.services.Records.Read(ctx, p.proc.ID, recordSeq(p.tr.next-1))
		if err != nil {
			return nil, err
		}
		p.src = src
	}
	return p.src.Next(ctx, 0)
}

// send pushes events.
func (p *push) send(ctx context.Context, batch []process.Event) error {
	p.items = p.items[:0]
	for i := range batch {
		p.items = p.tr.append(p.items, &batch[i])
	}
	return p.write(ctx)
}

func (p *push) write(ctx context.Context) error {
	for left := p.items; len(left) > 0; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := p.c.out.notify(p.id, left)
		if err != nil {
			return err
		}
		p.closed = p.closed || left[n-1].kind == itemClosed
		left = left[n:]
	}
	clear(p.items) // they refer to the record
	return nil
}

// end pushes the close of a record that ended without an Exited, to a client that has seen
// the exit.
func (p *push) end(ctx context.Context) {
	tail, err := p.c.services.Records.Tail(ctx, p.proc.ID)
	if err != nil || tail.Finished == nil {
		return
	}
	p.items = p.tr.rest(p.items[:0], tail.Last, &tail.Finished.Exit)
	_ = p.write(ctx)
}
