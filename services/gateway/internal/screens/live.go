package screens

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

const (
	frameEvery       = time.Second / 30
	defaultKeepalive = 30 * time.Second
)

// live streams a screen.
func (h *Handler) live(c *fiber.Ctx) error {
	p, id, err := h.target(c)
	if err != nil {
		return err
	}
	at, err := seq(c, "seq")
	if err != nil {
		return err
	}
	if last := c.Get("Last-Event-ID"); last != "" {
		if at, err = record.ParseSeq(last); err != nil {
			return err
		}
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	first, err := h.folds.at(ctx, p, id, at)
	if err != nil {
		return record.WriteError(c, err)
	}
	src := &watcher{hub: h.hubs.join(p, id), first: frameOf(first, nil)}
	enc := &encoder{id: id, keepalive: textenc.NewKeepaliveTimer(textenc.Keepalive(c.Get(textenc.KeepaliveHeader), defaultKeepalive))}
	head := stream.Head{ContentType: textenc.ContentTypeSSE, Headers: record.StreamHeaders(id, first.seq)}
	return h.cfg.Streams.Serve(c, head, src, enc)
}

// hubs are the folds of the processes that are watched.
type hubs struct {
	folds *folds
	log   *slog.Logger
	mu    sync.Mutex
	all   map[view]*hub
}

// view is a record as some principals see it: onlookers may see only a beginning of it.
type view struct {
	id    process.ID
	until process.Seq // last event that is shown; 0: no limit
}

// hub follows the record of one process.
type hub struct {
	hubs *hubs
	view

	cancel context.CancelFunc
	users  int // guarded by hubs.mu

	mu      sync.Mutex
	latest  *frame
	err     error // why it ended; io.EOF after the process
	changed chan struct{}
}

// join returns the hub of a process. The caller must leave it.
func (s *hubs) join(p core.Principal, id process.ID) *hub {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[view]*hub)
	}
	v := view{id, p.Until}
	x := s.all[v]
	if x == nil {
		// It outlives the request of its first watcher: its lifetime begins here.
		ctx, cancel := context.WithCancel(context.Background())
		x = &hub{hubs: s, view: v, cancel: cancel, changed: make(chan struct{})}
		s.all[v] = x
		go x.run(ctx, p)
	}
	x.users++
	return x
}

// leave ends the hub after its last watcher.
func (x *hub) leave() {
	x.hubs.mu.Lock()
	defer x.hubs.mu.Unlock()
	if x.users--; x.users == 0 {
		x.cancel()
		x.hubs.remove(x)
	}
}

func (s *hubs) remove(x *hub) {
	if s.all[x.view] == x {
		delete(s.all, x.view)
	}
}

func (x *hub) run(ctx context.Context, p core.Principal) {
	err := recovery.Do(x.hubs.log, "screen", func() error { return x.follow(ctx, p) })
	if err == nil {
		err = io.EOF
	}
	x.hubs.mu.Lock()
	x.hubs.remove(x) // a later watcher starts another one
	x.hubs.mu.Unlock()
	x.publish(nil, err)
}

// follow folds the record until it ends.
func (x *hub) follow(ctx context.Context, p core.Principal) error {
	f, err := x.hubs.folds.at(ctx, p, x.id, 0)
	if err != nil {
		return err
	}
	done := f.seq
	if f.end != nil && f.seq == f.last {
		x.publish(frameOf(f, nil), nil)
		return nil
	}
	f.end = nil // until its event is folded
	src, err := x.hubs.folds.open(ctx, p, f)
	if err != nil {
		return err
	}
	defer src.Close()
	latest := frameOf(f, nil)
	x.publish(latest, nil)
	var published time.Time
	for {
		wait := time.Duration(0)
		if f.seq > done {
			wait = max(frameEvery-time.Since(published), time.Millisecond)
		}
		batch, err := src.Next(ctx, wait)
		for i := range batch {
			if failed := x.hubs.folds.step(ctx, f, &batch[i]); failed != nil {
				return failed
			}
		}
		if f.seq > done && (err != nil || f.end != nil || time.Since(published) >= frameEvery) {
			latest = frameOf(f, latest)
			x.publish(latest, nil)
			done, published = f.seq, time.Now()
		}
		if errors.Is(err, io.EOF) || f.end != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// publish sets the latest frame, unless it is nil, or the error that ends the hub.
func (x *hub) publish(f *frame, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f != nil {
		x.latest = f
	}
	x.err = err
	close(x.changed)
	x.changed = make(chan struct{})
}

func (x *hub) state() (f *frame, changed <-chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.latest, x.changed, x.err
}

// shown carries a frame as an event of a process, which is what streams transport.
type shown struct {
	process.Lost // makes it a process.Body
	frame        *frame
}

// watcher is the source of one watcher.
type watcher struct {
	hub   *hub
	first *frame
	sent  *frame
}

// After returns the seq of the last frame returned.
func (w *watcher) After() process.Seq {
	if w.sent == nil {
		return 0
	}
	return w.sent.seq
}

// Close leaves the hub.
func (w *watcher) Close() { w.hub.leave() }

// Next returns the first frame, then the latest one that is newer.
func (w *watcher) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if f := w.first; f != nil {
		w.first = nil
		return w.send(f), nil
	}
	if w.sent.end != nil && w.sent.seq == w.sent.last {
		return nil, io.EOF
	}
	var quiet <-chan time.Time
	if idle > 0 {
		t := time.NewTimer(idle)
		defer t.Stop()
		quiet = t.C
	}
	for {
		f, changed, err := w.hub.state()
		if f != nil && (f.seq > w.sent.seq || f.seq == w.sent.seq && f.end != nil) {
			return w.send(f), nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-quiet:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *watcher) send(f *frame) []process.Event {
	w.sent = f
	return []process.Event{{Seq: f.seq, Time: time.Now(), Body: shown{frame: f}}}
}

// encoder encodes frames as Server-Sent Events.
type encoder struct {
	id        process.ID
	sent      *frame
	ended     bool // the event end was sent
	keepalive textenc.KeepaliveTimer
}

// AppendEvent appends the screen, then what changed.
func (e *encoder) AppendEvent(dst []byte, ev process.Event) ([]byte, error) {
	b, ok := ev.Body.(shown)
	if !ok {
		return dst, nil
	}
	f, before := b.frame, e.sent
	e.sent = f
	e.keepalive.Sent()
	if before == nil {
		dst = e.message(dst, "screen", f.screen())
	} else {
		if before.cols != f.cols || before.rows != f.rows {
			raw := appendInt(appendInt(appendSeq(nil, `{"seq":`, f.seq), `,"cols":`, f.cols), `,"rows":`, f.rows)
			dst = e.message(dst, "resize", append(raw, '}'))
			before = &frame{}
		}
		dst = e.message(dst, "rows", f.changes(before))
	}
	if f.end != nil && f.seq == f.last {
		dst = e.appendEnd(dst)
	}
	return dst, nil
}

func (e *encoder) appendEnd(dst []byte) []byte {
	e.ended = true
	return e.message(dst, "end", appendEnd(nil, e.sent))
}

// message appends a server-sent event with the seq as its id.
func (e *encoder) message(dst []byte, name string, data []byte) []byte {
	return textenc.AppendMessage(dst, strconv.FormatUint(e.sent.seq, 10), name, data)
}

// AppendIdle appends a comment when one is due.
func (e *encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	due, wait := e.keepalive.Due(time.Now())
	if due {
		dst = textenc.AppendComment(dst, "keepalive")
	}
	return dst, wait
}

// AppendEnd makes the client reconnect soon, or reports the error. A stream that ends before its process
// does shows a record up to an event, and that is its end.
func (e *encoder) AppendEnd(dst []byte, err error) []byte {
	if err == nil {
		if e.sent != nil && !e.ended {
			dst = e.appendEnd(dst)
		}
		return dst
	}
	after := process.Seq(0)
	if e.sent != nil {
		after = e.sent.seq
	}
	name := "error"
	if textenc.Reconnect(err) {
		dst = textenc.AppendRetry(dst)
		name = "reconnect"
	}
	return textenc.AppendMessage(dst, "", name, textenc.AppendLast(nil, err, e.id, after))
}
