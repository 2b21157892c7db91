package mux

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Stream is a net.Conn over a channel. Its methods may be called concurrently. Mux.mu
// guards its fields.
type Stream struct {
	m       *Mux
	id      uint32
	target  string
	dest    *destination
	changed sync.Cond

	taken    bool // the other end accepted or opened it
	accepted bool // this end accepted or opened it
	in       inbound
	out      outbound
	lent     int  // loan from Mux.budget
	done     bool // the stream has ended in both directions
	err      error
	broken   []*func() // called when err is set
}

// inbound is the direction of a stream that this end reads.
type inbound struct {
	data     buffer
	window   int  // maximum unread bytes
	grant    int  // bytes that the other end may still send
	read     int  // bytes read and not granted again
	ended    bool // the other end's Close was received
	unread   bool // no more reads
	deadline deadline
}

// outbound is the direction of a stream that this end writes.
type outbound struct {
	data     buffer
	most     int   // size limit of data
	credit   int   // bytes that may be sent
	queued   bool  // in Mux.ready
	closing  bool  // no more writes
	closed   bool  // our Close was sent
	last     error // sent as a Reset instead of Close
	deadline deadline
}

// deadline is the time after which a wait fails.
type deadline struct {
	t     time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.t.IsZero() && !time.Now().Before(d.t) }

// errAborted is sent to the other end of a stream that was aborted without a reason.
var errAborted = kind.New(kind.Canceled, "stream", "", "the other end aborted the stream")

// Target returns the target of the stream's Open.
func (s *Stream) Target() string { return s.target }

// Accept accepts a stream that the other end opened.
func (s *Stream) Accept() {
	s.m.mu.Lock()
	send := !s.accepted && s.err == nil
	if send {
		s.accepted = true
		s.m.control = appendWindow(s.m.control, s.id, uint32(s.in.grant))
	}
	s.m.unlock(send)
}

func (s *Stream) awaitAccepted() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for !s.taken && s.err == nil {
		s.changed.Wait()
	}
	if s.taken { // it may even have ended since
		return nil // it may even have ended since
	}
	return s.err
}

// Read reads received data. It returns io.EOF if the other end closed in order.
func (s *Stream) Read(p []byte) (int, error) {
	s.m.mu.Lock()
	for {
		switch {
		case s.in.unread:
			s.m.mu.Unlock()
			return 0, net.ErrClosed
		case s.in.deadline.passed():
			s.m.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			s.m.mu.Unlock()
			return 0, nil
		case s.in.data.len() > 0:
			n := copy(p, s.in.data.head(len(p)))
			s.in.data.drop(n)
			if s.done {
				s.returnLoan(s.in.data.len())
			}
			s.m.unlock(s.regrant(n))
			return n, nil
		case s.in.ended:
			s.m.mu.Unlock()
			return 0, io.EOF
		case s.err != nil:
			err := s.err
			s.m.mu.Unlock()
			return 0, err
		}
		s.changed.Wait()
	}
}

// regrant grants the other end the n bytes that were read, half a window at a time, and
// reports whether it added a frame; Mux.mu is held.
func (s *Stream) regrant(n int) bool {
	if s.in.read += n; s.in.read < s.in.window/2 || s.in.ended || s.err != nil {
		return false
	}
	s.in.read += s.growWindow()
	s.m.control = appendWindow(s.m.control, s.id, uint32(s.in.read))
	s.in.grant += s.in.read
	s.in.read = 0
	return true
}

// Write copies p to the send buffer, and blocks while that is full. It does not wait until
// the other end has received p.
func (s *Stream) Write(p []byte) (int, error) {
	n := 0
	s.m.mu.Lock()
	for {
		switch {
		case s.err != nil:
			err := s.err
			s.m.mu.Unlock()
			return n, err
		case s.out.closing:
			s.m.mu.Unlock()
			return n, net.ErrClosed
		case s.out.deadline.passed():
			s.m.mu.Unlock()
			return n, os.ErrDeadlineExceeded
		case len(p) == 0:
			s.m.mu.Unlock()
			return 0, nil
		}
		if free := s.out.most - s.out.data.len(); free > 0 {
			k := min(free, len(p)-n)
			s.out.data.put(p[n : n+k])
			n += k
			s.m.unlock(s.enqueue())
			if n == len(p) { // the other end may have responded and closed
				return n, nil
			}
			s.m.mu.Lock()
			continue
		}
		if !s.growBuffer() {
			s.changed.Wait()
		}
	}
}

// enqueue queues s if it has data that may be sent, and reports whether it did; Mux.mu is
// held.
func (s *Stream) enqueue() bool {
	if s.out.queued || s.out.data.len() == 0 || s.out.credit == 0 || s.err != nil {
		return false
	}
	s.out.queued = true
	s.m.ready = append(s.m.ready, s)
	return true
}

// finish adds a Close once all written data is sent, and reports whether it added a frame;
// Mux.mu is held.
func (s *Stream) finish() bool {
	if !s.out.closing || s.out.closed || s.out.data.len() > 0 || s.err != nil {
		return false
	}
	if s.out.last != nil {
		s.m.control = appendReset(s.m.control, s.id, s.out.last)
		s.fail(s.out.last)
		return true
	}
	s.out.closed = true
	s.m.control = appendClose(s.m.control, s.id)
	if s.in.unread && !s.in.ended {
		s.m.control = appendReset(s.m.control, s.id, errAborted)
	}
	if s.in.ended || s.in.unread {
		s.m.remove(s)
	}
	return true
}

// CloseWrite ends the writing. The other end reads io.EOF after the data.
func (s *Stream) CloseWrite() error {
	s.m.mu.Lock()
	s.out.closing = true
	s.changed.Broadcast()
	s.m.unlock(s.finish())
	return nil
}

// Close closes the stream: written data still arrives, received data is dropped.
func (s *Stream) Close() error {
	s.m.mu.Lock()
	already := s.in.unread
	s.out.closing, s.in.unread = true, true
	s.drop()
	s.stopTimers()
	s.changed.Broadcast()
	send := s.finish()
	switch {
	case s.done || already:
	case s.out.closed:
		s.m.control = appendReset(s.m.control, s.id, errAborted)
		s.m.remove(s)
		send = true
	default:
		time.AfterFunc(linger, func() { s.Abort(nil) })
	}
	s.m.unlock(send)
	return nil
}

// CloseWithError is Close, but after the data the other end reads err instead of io.EOF.
// nil: no reason.
func (s *Stream) CloseWithError(err error) {
	if err == nil {
		err = errAborted
	}
	s.m.mu.Lock()
	if s.done || s.out.closed { // too late for a reason
		s.m.mu.Unlock()
		s.Close()
		return
	}
	s.out.closing, s.in.unread, s.out.last = true, true, err
	s.drop()
	s.stopTimers()
	s.changed.Broadcast()
	send := s.finish()
	if !s.done {
		time.AfterFunc(linger, func() { s.Abort(err) })
	}
	s.m.unlock(send)
}

// drop discards received data that is not read any more; Mux.mu is held.
func (s *Stream) drop() {
	s.in.data.free()
	s.returnLoan(s.out.data.len())
}

// linger is how long the other end may take to grant the data written before Close.
const linger = 30 * time.Second

// Abort ends the stream at once in both directions and sends the other end the reason; nil:
// no reason.
func (s *Stream) Abort(err error) {
	if err == nil {
		err = errAborted
	}
	s.m.mu.Lock()
	send := !s.done
	if send {
		s.m.control = appendReset(s.m.control, s.id, err)
		s.fail(err)
	}
	s.returnLoan(0) // discarded, although a reader may continue
	s.m.unlock(send)
}

// fail ends the stream; Mux.mu is held.
func (s *Stream) fail(err error) {
	s.err = err
	s.out.data.free()
	s.m.remove(s)
	s.changed.Broadcast()
	for _, f := range s.broken {
		go (*f)()
	}
	s.broken = nil
}

// AfterBreak calls f when the stream is aborted, unless stop was called before. It is for
// callers that are blocked elsewhere. An orderly end does not count.
func (s *Stream) AfterBreak(f func()) (stop func()) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.err != nil {
		go f()
		return func() {}
	}
	s.broken = append(s.broken, &f)
	return func() {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		s.broken = slices.DeleteFunc(s.broken, func(g *func()) bool { return g == &f })
	}
}

func (s *Stream) stopTimers() {
	for _, d := range [...]*deadline{&s.in.deadline, &s.out.deadline} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
}

// handle processes a frame of the other end; Mux.mu is held, here and below.
func (s *Stream) handle(t uint8, b []byte) error {
	switch {
	case t == typeData:
		return s.receive(b)
	case t == typeWindow && len(b) == 4:
		return s.granted(binary.LittleEndian.Uint32(b))
	case t == typeClose && len(b) == 0:
		return s.peerClosed()
	case t == typeReset && len(b) > 0 && len(b) <= 1+maxText:
		s.fail(kind.New(kind.Kind(b[0]), "stream", "", string(b[1:])))
		return nil
	}
	return ErrProtocol
}

// receive handles data.
func (s *Stream) receive(b []byte) error {
	if len(b) == 0 || len(b) > s.in.grant || s.in.ended || !s.accepted {
		return ErrProtocol
	}
	s.in.grant -= len(b)
	if !s.in.unread {
		s.in.data.put(b)
		s.changed.Broadcast()
	}
	return nil
}

func (s *Stream) granted(n uint32) error {
	if n > maxCredit || s.out.credit+int(n) > maxCredit {
		return ErrProtocol
	}
	s.out.credit += int(n)
	s.taken = true
	s.enqueue()
	s.changed.Broadcast()
	return nil
}

func (s *Stream) peerClosed() error {
	if s.in.ended || !s.accepted {
		return ErrProtocol
	}
	s.in.ended, s.taken = true, true
	if s.out.closed {
		s.m.remove(s)
	}
	s.changed.Broadcast()
	return nil
}

// SetDeadline calls SetReadDeadline and SetWriteDeadline.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline makes reads fail with os.ErrDeadlineExceeded after t.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.in.deadline, t) }

// SetWriteDeadline makes writes fail with os.ErrDeadlineExceeded after t.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.out.deadline, t) }

func (s *Stream) setDeadline(d *deadline, t time.Time) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	d.t = t
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), s.wake)
	}
	s.changed.Broadcast()
	return nil
}

func (s *Stream) wake() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.changed.Broadcast()
}

// addr is a placeholder: a stream has no network address.
type addr string

func (addr) Network() string  { return "mux" }
func (a addr) String() string { return string(a) }

// LocalAddr returns the target.
func (s *Stream) LocalAddr() net.Addr { return addr(s.target) }

// RemoteAddr returns the target.
func (s *Stream) RemoteAddr() net.Addr { return addr(s.target) }
