package mux

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/events/kind"
)

// Config configures a Mux. The zero value of a field selects its default.
type Config struct {
	Even       bool // own streams have even ids; must differ at the two ends
	Window     int  // maximum unread bytes of a stream; default 256 KiB
	MaxStreams int  // maximum number of streams opened by the other end; default 256
	MaxOpen    int  // maximum number of own open streams, beyond which Open waits; 0: no limit
	MaxEach    int  // the same per destination, which is a target up to its colon

	// Budget is the maximum number of bytes that all streams hold together, received and to
	// be sent; 0: a whole Window each. One half is divided into equal guaranteed parts; the
	// other half is lent to open streams, to each destination in proportion to its maximum
	// number of streams. An end that opens streams needs a MaxOpen with it.
	Budget int

	// Wake is called when there are frames to Append. It must not block, and may call only
	// Pending. Required.
	Wake func()

	// Accept is called from Handle with each stream that the other end opens. It must not
	// block, and the stream must later be accepted or aborted. nil: all streams are
	// rejected.
	Accept func(*Stream)
}

const (
	defaultWindow     = 256 << 10
	defaultMaxStreams = 256
	maxControl        = 1 << 20   // bytes of pending frames without data
	outBuffer         = 64 << 10  // bytes of a stream's pending data
	keepControl       = 16 << 10  // memory kept for the next frames
	lastID            = 1<<32 - 4 // last stream id, after which the channel is exhausted
)

// Mux is one end of a channel. Handle and Append belong to one goroutine each; its other
// methods may be called concurrently.
type Mux struct {
	cfg     Config
	pending atomic.Bool
	slots   slots // of MaxOpen

	mu           sync.Mutex
	streams      map[uint32]*Stream
	destinations map[string]*destination // destinations of streams, and of callers that wait for one
	budget       budget
	theirs       int    // number of streams opened by the other end
	next         uint32 // id of the next own stream
	seen         uint32 // highest id opened by the other end
	control      []byte
	ready        []*Stream // streams with data that may be sent, each once
	err          error     // why the channel has ended
}

// slots is a semaphore for own open streams; nil: no limit.
type slots chan struct{}

func newSlots(n int) slots {
	if n == 0 {
		return nil
	}
	return make(slots, n)
}

// acquire waits for a slot, in the order of the callers.
func (s slots) acquire(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return kind.Newf(kind.Exhausted, "open stream", "", "%d streams are open, which is the limit", cap(s))
	}
}

func (s slots) release() {
	if s != nil {
		<-s
	}
}

// destination is a destination, which has a limit of its own.
type destination struct {
	name  string
	slots slots // of MaxEach
	users int   // streams to it, and callers that wait for one
	lent  int   // budget lent to its streams
}

// New returns an end of a channel.
func New(cfg Config) *Mux {
	cfg.Window = cmp.Or(cfg.Window, defaultWindow)
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, defaultMaxStreams)
	m := &Mux{cfg: cfg, slots: newSlots(cfg.MaxOpen), streams: make(map[uint32]*Stream), destinations: make(map[string]*destination), budget: newBudget(&cfg), next: 1}
	if cfg.Even {
		m.next = 2
	}
	return m
}

// Pending reports whether there are frames to Append.
func (m *Mux) Pending() bool { return m.pending.Load() }

// Err returns why the channel has ended; nil while it is open.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Count returns the number of open streams.
func (m *Mux) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

// Open opens a stream to target, which has at most 1 KiB, and waits until the other end
// accepts it. It returns the other end's reason if that rejects it, ctx's error, the error
// that ended the channel, or Exhausted if MaxOpen or MaxEach streams were open until ctx
// ended.
func (m *Mux) Open(ctx context.Context, target string) (*Stream, error) {
	if len(target) > maxTarget {
		return nil, kind.New(kind.Invalid, "open stream", "", "the name of its target is too long")
	}
	p, err := m.acquireSlots(ctx, target)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	switch {
	case m.err != nil:
		m.releaseSlots(p)
		m.mu.Unlock()
		return nil, m.err
	case m.next >= lastID:
		m.releaseSlots(p)
		m.mu.Unlock()
		return nil, kind.New(kind.Exhausted, "open stream", "", "the channel has no stream ids left")
	}
	s := m.add(m.next, target, p)
	m.next += 2
	s.accepted = true
	m.control = appendOpen(m.control, s.id, uint32(s.in.grant), target)
	m.unlock(true)

	stop := context.AfterFunc(ctx, func() { s.Abort(ctx.Err()) })
	err = s.awaitAccepted()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// acquireSlots waits for the slots of a stream, the destination's first: a caller that waits there
// does not block others. The other end receives the end of a stream before the next Open,
// so its limit is never exceeded.
func (m *Mux) acquireSlots(ctx context.Context, target string) (*destination, error) {
	m.mu.Lock()
	p := m.addUser(target)
	m.mu.Unlock()
	err := p.slots.acquire(ctx)
	if err == nil {
		if err = m.slots.acquire(ctx); err != nil {
			p.slots.release()
		}
	}
	if err != nil {
		m.mu.Lock()
		m.removeUser(p)
		m.mu.Unlock()
	}
	return p, err
}

func destinationOf(target string) string {
	name, _, _ := strings.Cut(target, ":")
	return name
}

// addUser adds a user to a target's destination; m.mu is held, here and below.
func (m *Mux) addUser(target string) *destination {
	name := destinationOf(target)
	p := m.destinations[name]
	if p == nil {
		p = &destination{name: name, slots: newSlots(m.cfg.MaxEach)}
		m.destinations[name] = p
	}
	p.users++
	return p
}

func (m *Mux) removeUser(p *destination) {
	p.users--
	m.dropUnused(p)
}

// dropUnused removes an unused destination.
func (m *Mux) dropUnused(p *destination) {
	if p.users == 0 && p.lent == 0 && m.destinations[p.name] == p {
		delete(m.destinations, p.name)
	}
}

// releaseSlots returns the slots of acquireSlots.
func (m *Mux) releaseSlots(p *destination) {
	m.slots.release()
	p.slots.release()
	m.removeUser(p)
}

// add creates a stream to a destination that was entered for it.
func (m *Mux) add(id uint32, target string, p *destination) *Stream {
	s := &Stream{m: m, id: id, target: target, dest: p}
	s.in.grant = s.growWindow()
	s.changed.L = &m.mu
	m.streams[id] = s
	return s
}

// ours reports whether this end opened the stream with that id.
func (m *Mux) ours(id uint32) bool { return (id%2 == 0) == m.cfg.Even }

// unlock releases m.mu and calls Wake if there are new frames.
func (m *Mux) unlock(wake bool) {
	wake = wake && m.err == nil && !m.pending.Swap(true)
	m.mu.Unlock()
	if wake {
		m.cfg.Wake()
	}
}

// Append appends the pending frames to dst, with at most about budget bytes of data, taking
// the streams in turn.
func (m *Mux) Append(dst []byte, budget int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	dst = append(dst, m.control...)
	if m.control = m.control[:0]; cap(m.control) > keepControl {
		m.control = nil
	}
	for budget > 0 && len(m.ready) > 0 {
		s := m.ready[0]
		m.ready = m.ready[1:]
		s.out.queued = false
		n := min(maxChunk, budget, s.out.credit)
		if data := s.out.data.head(n); len(data) > 0 {
			dst = appendData(dst, s.id, data)
			s.out.credit -= len(data)
			budget -= len(data)
			s.out.data.drop(len(data))
			s.changed.Broadcast()
		}
		s.enqueue()
		if s.finish() { // its Close follows the data
			dst = append(dst, m.control...)
			m.control = m.control[:0]
		}
	}
	if len(m.ready) == 0 {
		m.ready = nil
	}
	m.pending.Store(len(m.ready) > 0)
	return dst
}

// Break ends all streams, because the channel has ended.
func (m *Mux) Break(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.err = err
	m.control, m.ready = nil, nil
	for _, s := range m.streams {
		s.fail(err)
	}
}

// Handle processes a frame of the other end. After an error, which is ErrProtocol, the
// channel must be closed. b is not retained.
func (m *Mux) Handle(t uint8, b []byte) error {
	if len(b) < 4 || len(b) > MaxFrame {
		return ErrProtocol
	}
	id, b := binary.LittleEndian.Uint32(b), b[4:]
	m.mu.Lock()
	var opened *Stream
	var err error
	switch {
	case m.err != nil: // it was in flight
	case t == typeOpen:
		opened, err = m.opened(id, b)
	case m.streams[id] != nil:
		err = m.streams[id].handle(t, b)
	case id == 0 || m.ours(id) && id >= m.next || !m.ours(id) && id > m.seen:
		err = ErrProtocol // the stream never existed; frames of ended streams are legal until the other end receives the end
	}
	if len(m.control) > maxControl {
		err = ErrProtocol // it sends requests and does not read
	}
	m.unlock(len(m.control) > 0 || len(m.ready) > 0)
	if opened != nil && err == nil {
		m.cfg.Accept(opened)
	}
	return err
}

// opened handles an Open of the other end; m.mu is held.
func (m *Mux) opened(id uint32, b []byte) (*Stream, error) {
	if m.ours(id) || id <= m.seen || len(b) < 4 || len(b) > 4+maxTarget {
		return nil, ErrProtocol
	}
	credit := binary.LittleEndian.Uint32(b)
	if credit > maxCredit {
		return nil, ErrProtocol
	}
	m.seen = id
	switch {
	case m.cfg.Accept == nil:
		m.control = appendReset(m.control, id, kind.New(kind.Unimplemented, "open stream", "", "this end accepts no streams"))
		return nil, nil
	case m.theirs >= m.cfg.MaxStreams:
		m.control = appendReset(m.control, id, kind.New(kind.Exhausted, "open stream", "", "too many streams are open"))
		return nil, nil
	}
	target := string(b[4:])
	s := m.add(id, target, m.addUser(target))
	s.out.credit, s.taken = int(credit), true
	m.theirs++
	return s, nil
}

// remove drops a stream that gets no more frames; m.mu is held.
func (m *Mux) remove(s *Stream) {
	if m.streams[s.id] != s {
		return
	}
	delete(m.streams, s.id)
	s.done = true
	if m.ours(s.id) {
		m.releaseSlots(s.dest)
	} else {
		m.theirs--
		m.removeUser(s.dest)
	}
	s.returnLoan(s.in.data.len() + s.out.data.len())
	if s.out.queued {
		m.ready = slices.DeleteFunc(m.ready, func(r *Stream) bool { return r == s })
		s.out.queued = false
	}
}
