package mux

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/events/kind"
)

// Config says how a Mux works. The zero value of a field is its default.
type Config struct {
	Even       bool // our streams have even ids; it must differ at the two ends
	Window     int  // bytes that may come on a stream before they are read; default 256 KiB
	MaxStreams int  // that the other end may have open; default 256
	MaxOpen    int  // that we have open: Open waits for its turn; 0: no limit
	MaxEach    int  // of these, to one place, which is a target up to its colon: as MaxOpen

	// Budget is the bytes that all streams may hold together, of what came and of what
	// is to go; 0: each a whole Window. Half of it is the streams' own, in equal parts,
	// and the other half lent to those that there are, to each place so much of it as it
	// may have of the streams. Where we open any it wants a MaxOpen.
	Budget int

	// Wake is called when there is something to Append; it must not block, and
	// may call Pending only. Required.
	Wake func()

	// Accept is called with each stream that the other end opens, within Handle: it
	// must not block, and somebody must Accept or Abort the stream. nil: all are
	// refused.
	Accept func(*Stream)
}

const (
	defaultWindow     = 256 << 10
	defaultMaxStreams = 256
	maxControl        = 1 << 20   // bytes of frames without data that wait to be sent
	outBuffer         = 64 << 10  // bytes of a stream that were written and wait to be sent
	keepControl       = 16 << 10  // memory kept for the next frames
	lastID            = 1<<32 - 4 // of a stream: then the channel has had its time
)

// Mux is one end of a channel. Handle and Append belong to one goroutine each;
// its other methods may be called concurrently.
type Mux struct {
	cfg     Config
	pending atomic.Bool
	slots   slots // of MaxOpen

	mu      sync.Mutex
	streams map[uint32]*Stream
	places  map[string]*place // to which there are streams, or somebody waits for one
	rooms   rooms
	theirs  int    // of streams: opened by the other end
	next    uint32 // id of our next stream
	seen    uint32 // the highest id that the other end opened
	control []byte
	ready   []*Stream // with something that may be sent, each once
	err     error     // why the channel is over
}

// slots have one taken by each stream that we have open; nil: there is no limit.
type slots chan struct{}

func newSlots(n int) slots {
	if n == 0 {
		return nil
	}
	return make(slots, n)
}

// take waits for a slot, in the order of those who ask.
func (s slots) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return kind.Newf(kind.Exhausted, "open stream", "", "%d streams are open, which is as many as may be", cap(s))
	}
}

func (s slots) give() {
	if s != nil {
		<-s
	}
}

// place is what has a limit of its own.
type place struct {
	name  string
	slots slots // of MaxEach
	users int   // streams to it, and who waits for one
	lent  int   // of rooms, to its streams
}

// New gives an end of a channel.
func New(cfg Config) *Mux {
	if cfg.Window == 0 {
		cfg.Window = defaultWindow
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = defaultMaxStreams
	}
	m := &Mux{cfg: cfg, slots: newSlots(cfg.MaxOpen), streams: make(map[uint32]*Stream), places: make(map[string]*place), rooms: newRooms(&cfg), next: 1}
	if cfg.Even {
		m.next = 2
	}
	return m
}

// Pending reports whether Append has anything to append.
func (m *Mux) Pending() bool { return m.pending.Load() }

// Err says why the channel is over; nil: it is not.
func (m *Mux) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Count is how many streams are open.
func (m *Mux) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

// Open asks the other end for a stream to target, of at most 1 KiB, and waits
// until it took it. Errors: why it did not; ctx's; what ended the channel; Exhausted
// where MaxOpen or MaxEach were open until ctx ended.
func (m *Mux) Open(ctx context.Context, target string) (*Stream, error) {
	if len(target) > maxTarget {
		return nil, kind.New(kind.Invalid, "open stream", "", "the name of its target is too long")
	}
	p, err := m.take(ctx, target)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	switch {
	case m.err != nil:
		m.give(p)
		m.mu.Unlock()
		return nil, m.err
	case m.next >= lastID:
		m.give(p)
		m.mu.Unlock()
		return nil, kind.New(kind.Exhausted, "open stream", "", "the channel has had too many streams")
	}
	s := m.add(m.next, target, p)
	m.next += 2
	s.accepted = true
	m.control = appendOpen(m.control, s.id, uint32(s.grant), target)
	m.unlock(true)

	stop := context.AfterFunc(ctx, func() { s.Abort(ctx.Err()) })
	err = s.awaitTaken()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// take waits for the slots of a stream, the place's first: who waits there is in
// nobody else's way. The other end has heard of the end of a stream when it hears of
// the next, so that none is too many.
func (m *Mux) take(ctx context.Context, target string) (*place, error) {
	m.mu.Lock()
	p := m.enter(target)
	m.mu.Unlock()
	err := p.slots.take(ctx)
	if err == nil {
		if err = m.slots.take(ctx); err != nil {
			p.slots.give()
		}
	}
	if err != nil {
		m.mu.Lock()
		m.leave(p)
		m.mu.Unlock()
	}
	return p, err
}

func placeOf(target string) string {
	name, _, _ := strings.Cut(target, ":")
	return name
}

// enter counts one more who uses a target's place; m.mu is held, here and below.
func (m *Mux) enter(target string) *place {
	name := placeOf(target)
	p := m.places[name]
	if p == nil {
		p = &place{name: name, slots: newSlots(m.cfg.MaxEach)}
		m.places[name] = p
	}
	p.users++
	return p
}

func (m *Mux) leave(p *place) {
	p.users--
	m.tidy(p)
}

// tidy forgets a place that nobody uses.
func (m *Mux) tidy(p *place) {
	if p.users == 0 && p.lent == 0 && m.places[p.name] == p {
		delete(m.places, p.name)
	}
}

// give gives back what take took.
func (m *Mux) give(p *place) {
	m.slots.give()
	p.slots.give()
	m.leave(p)
}

// add makes a stream to a place that was entered for it.
func (m *Mux) add(id uint32, target string, p *place) *Stream {
	s := &Stream{m: m, id: id, target: target, place: p}
	s.grant = s.widen()
	s.changed.L = &m.mu
	m.streams[id] = s
	return s
}

// ours reports whether an id is of a stream that we opened.
func (m *Mux) ours(id uint32) bool { return (id%2 == 0) == m.cfg.Even }

// unlock lets go of m.mu and wakes whoever appends if there is something new.
func (m *Mux) unlock(wake bool) {
	wake = wake && m.err == nil && !m.pending.Swap(true)
	m.mu.Unlock()
	if wake {
		m.cfg.Wake()
	}
}

// Append appends the frames that wait, with at most about budget bytes of data,
// each stream in its turn.
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
		s.queued = false
		n := min(maxChunk, budget, s.credit)
		if data := s.out.head(n); len(data) > 0 {
			dst = appendData(dst, s.id, data)
			s.credit -= len(data)
			budget -= len(data)
			s.out.drop(len(data))
			s.changed.Broadcast()
		}
		s.enqueue()
		if s.finish() { // its Close comes after the data
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

// Break ends all streams: the channel is over.
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

// Handle takes a frame of the other end. After an error, which is ErrProtocol,
// the channel must be given up. b is not kept.
func (m *Mux) Handle(t uint8, b []byte) error {
	if len(b) < 4 || len(b) > MaxFrame {
		return ErrProtocol
	}
	id, b := binary.LittleEndian.Uint32(b), b[4:]
	m.mu.Lock()
	var opened *Stream
	var err error
	switch {
	case m.err != nil: // it was on its way
	case t == typeOpen:
		opened, err = m.opened(id, b)
	case m.streams[id] != nil:
		err = m.streams[id].handle(t, b)
	case id == 0 || m.ours(id) && id >= m.next || !m.ours(id) && id > m.seen:
		err = ErrProtocol // a stream that never was; others have ended here, and the other end does not know yet
	}
	if len(m.control) > maxControl {
		err = ErrProtocol // it asks and does not listen
	}
	m.unlock(len(m.control) > 0 || len(m.ready) > 0)
	if opened != nil && err == nil {
		m.cfg.Accept(opened)
	}
	return err
}

// opened takes the other end's Open; m.mu is held.
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
		m.control = appendReset(m.control, id, kind.New(kind.Unimplemented, "open stream", "", "nobody takes streams here"))
		return nil, nil
	case m.theirs >= m.cfg.MaxStreams:
		m.control = appendReset(m.control, id, kind.New(kind.Exhausted, "open stream", "", "too many streams are open"))
		return nil, nil
	}
	target := string(b[4:])
	s := m.add(id, target, m.enter(target))
	s.credit, s.taken = int(credit), true
	m.theirs++
	return s, nil
}

// remove forgets a stream of which nothing more can come; m.mu is held.
func (m *Mux) remove(s *Stream) {
	if m.streams[s.id] != s {
		return
	}
	delete(m.streams, s.id)
	s.over = true
	if m.ours(s.id) {
		m.give(s.place)
	} else {
		m.theirs--
		m.leave(s.place)
	}
	s.giveBack(s.in.len() + s.out.len())
	if s.queued {
		m.ready = slices.DeleteFunc(m.ready, func(r *Stream) bool { return r == s })
		s.queued = false
	}
}
