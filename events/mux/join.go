package mux

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// Joined is what Join takes: a *Stream, a TCP or unix connection...
type Joined interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Join carries bytes both ways until both directions have ended, then closes
// both. An end in order of one is passed on as such; anything else cuts the
// other, after all that came before, so that nobody takes it for an end. Who
// takes no more is still listened to: a server may have said all it had to say of a
// request before it closed its ears to the rest. Where a stream was cut, the other end is not
// waited for longer than half a minute in which it takes nothing. It gives the first error.
func Join(a, b Joined) error {
	over := make(chan struct{})
	defer close(over)
	var mu sync.Mutex
	to, from := &half{mu: &mu, dst: a, src: b}, &half{mu: &mu, dst: b, src: a}
	to.back, from.back = from, to
	defer to.watch(over)()
	defer from.watch(over)()
	back := make(chan error, 1)
	var fault any // a panic beside is for who calls, who may know what to do with it
	go func() {
		defer func() {
			if p := recover(); p != nil {
				fault = fmt.Sprintf("%v\n%s", p, debug.Stack())
				a.Close() //nolint:errcheck // then the other direction ends, too
				b.Close() //nolint:errcheck // likewise
				back <- nil
			}
		}()
		back <- from.carry()
	}()
	err := to.carry()
	other := <-back
	if fault != nil {
		panic(fault)
	}
	if err == nil {
		err = other
	}
	a.Close() //nolint:errcheck // both directions have ended
	b.Close() //nolint:errcheck // both directions have ended
	return err
}

// half is one direction.
type half struct {
	dst, src Joined
	back     *half

	mu      *sync.Mutex   // of both; it guards what follows
	deaf    error         // why dst takes no more; what comes for it is thrown away
	over    bool          // nothing more is carried
	passed  int           // bytes that dst took
	writing chan struct{} // closed when the write to dst that is under way is over; nil: none is
}

const (
	joinBuffer = 32 << 10
	settle     = time.Second // within which a write to what was reset has returned
)

// carry carries the direction to its end, and gives what is wrong with it.
func (h *half) carry() error {
	buf := make([]byte, joinBuffer)
	heard := true
	for {
		n, err := h.src.Read(buf)
		if n > 0 && heard {
			lost := h.write(buf[:n])
			if heard = lost == nil; !heard && h.lose(lost) {
				h.src.Close() //nolint:errcheck // what it was sent still arrives
				return lost
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return h.end()
		case err != nil:
			return h.cut(err)
		}
	}
}

func (h *half) write(p []byte) error {
	done := make(chan struct{})
	h.mu.Lock()
	h.writing = done
	h.mu.Unlock()
	_, err := h.dst.Write(p)
	h.mu.Lock()
	h.passed += len(p)
	if h.writing = nil; err != nil {
		h.deaf = err
	}
	h.mu.Unlock()
	close(done)
	return err
}

// watch ends what waits for dst when src is a stream that was cut: dst may read nothing, or
// say nothing, for ever, and till then nobody looks at src.
func (h *half) watch(over <-chan struct{}) (stop func()) {
	s, ok := h.src.(interface{ AfterBreak(f func()) (stop func()) })
	if !ok {
		return func() {}
	}
	return s.AfterBreak(func() {
		was := 0
		for quiet := time.Duration(0); quiet < linger; quiet += settle {
			switch passed, ended := h.state(); {
			case ended: // it has all that came, and what it says reaches nobody
				h.dst.Close() //nolint:errcheck // nothing to be done
				return
			case passed > was:
				was, quiet = passed, 0
			}
			select {
			case <-over:
				return
			case <-time.After(settle):
			}
		}
		Cut(h.dst, errAborted)
	})
}

func (h *half) state() (passed int, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.passed, h.over
}

// lose notes that dst takes no more, and reports whether it says no more either.
func (h *half) lose(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf = err
	return h.back.over
}

// end passes on that src ended in order.
func (h *half) end() error {
	unheard := h.unheard()
	switch {
	case reset(unheard):
		return h.cut(unheard)
	case unheard != nil: // what dst says reaches nobody
		return h.dst.Close() // what it was sent still arrives
	}
	err := h.dst.CloseWrite()
	if err != nil {
		h.lose(err)
	}
	return err
}

// cut passes on that src ended otherwise.
func (h *half) cut(err error) error {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	cutBehind(h.dst, err)
	return err
}

// unheard notes that src said its last, and gives why it takes no more, if so. A
// system tells of a reset once: where a write was told, the read is told of an end.
func (h *half) unheard() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	if _, ok := h.src.(*Stream); ok || h.back.writing == nil {
		return h.back.deaf
	}
	done := h.back.writing
	h.mu.Unlock()
	select {
	case <-done:
	case <-time.After(settle): // it waits for who does not read, and was told nothing
	}
	h.mu.Lock()
	return h.back.deaf
}

// reset reports whether the error of a write says more than that the other end has
// closed: then what it said last may be missing.
func reset(err error) bool { return err != nil && !errors.Is(err, syscall.EPIPE) }

// cutBehind is Cut behind what was written.
func cutBehind(c io.Closer, err error) {
	if s, ok := c.(interface{ CloseWithError(err error) }); ok {
		s.CloseWithError(err)
		return
	}
	Cut(c, err)
}

// Cut ends a connection so that its peer does not take it for an end in order.
func Cut(c io.Closer, err error) {
	switch c := c.(type) {
	case interface{ Abort(err error) }: // a *Stream, or what wraps one
		c.Abort(err)
		return
	case interface{ SetLinger(sec int) error }:
		c.SetLinger(0) //nolint:errcheck // then it ends in order
	}
	c.Close() //nolint:errcheck // it is given up
}
