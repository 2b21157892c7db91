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

// Joined is an argument of Join: a *Stream, a TCP or unix connection...
type Joined interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Join copies bytes in both directions until both have ended, closes both connections, and
// returns the first error. An orderly end of one is passed on as such; after any other end
// the other connection is aborted, after all data received before, so that the end is not
// mistaken for an orderly one. A peer that stops reading is still read from: a server may
// have sent its whole response before it closed its read side. After a stream is aborted,
// Join waits for the other end at most half a minute without progress.
func Join(a, b Joined) error {
	over := make(chan struct{})
	defer close(over)
	var mu sync.Mutex
	to, from := &half{mu: &mu, dst: a, src: b}, &half{mu: &mu, dst: b, src: a}
	to.reverse, from.reverse = from, to
	defer to.watch(over)()
	defer from.watch(over)()
	back := make(chan error, 1)
	var fault any // a panic in the goroutine, rethrown in the caller, which may recover it
	go func() {
		defer func() {
			if p := recover(); p != nil {
				fault = fmt.Sprintf("%v\n%s", p, debug.Stack())
				a.Close()
				b.Close()
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
	a.Close()
	b.Close()
	return err
}

// half is one direction of a Join.
type half struct {
	dst, src Joined
	reverse  *half

	mu       *sync.Mutex   // of both halves; guards the fields below
	writeErr error         // why dst stopped reading; further data for it is discarded
	ended    bool          // the direction has ended
	passed   int           // bytes that dst accepted
	writing  chan struct{} // closed when the current write to dst returns; nil: no write
}

const (
	joinBuffer = 32 << 10
	settle     = time.Second // within which a write to a reset connection has returned
)

// carry copies until the direction ends, and returns its error.
func (h *half) carry() error {
	buf := make([]byte, joinBuffer)
	heard := true
	for {
		n, err := h.src.Read(buf)
		if n > 0 && heard {
			lost := h.write(buf[:n])
			if heard = lost == nil; !heard && h.stopWriting(lost) {
				h.src.Close()
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
		h.writeErr = err
	}
	h.mu.Unlock()
	close(done)
	return err
}

// watch closes dst when src is an aborted stream: dst may neither read nor send for ever,
// and meanwhile nothing reads src.
func (h *half) watch(over <-chan struct{}) (stop func()) {
	s, ok := h.src.(interface{ AfterBreak(f func()) (stop func()) })
	if !ok {
		return func() {}
	}
	return s.AfterBreak(func() {
		was := 0
		for quiet := time.Duration(0); quiet < linger; quiet += settle {
			switch passed, ended := h.state(); {
			case ended: // it has all data, and its answer has no reader
				h.dst.Close()
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
	return h.passed, h.ended
}

// stopWriting records that dst stopped reading, and reports whether dst also stopped sending.
func (h *half) stopWriting(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writeErr = err
	return h.reverse.ended
}

// end passes on an orderly end of src.
func (h *half) end() error {
	writeErr := h.endRead()
	switch {
	case reset(writeErr):
		return h.cut(writeErr)
	case writeErr != nil: // what dst sends has no reader
		return h.dst.Close() // data already written still arrives
	}
	err := h.dst.CloseWrite()
	if err != nil {
		h.stopWriting(err)
	}
	return err
}

// cut passes on any other end of src.
func (h *half) cut(err error) error {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	cutAfterWrites(h.dst, err)
	return err
}

// endRead records that src stopped sending, and returns why it stopped reading, if it did.
// The kernel reports a reset once: if a write got it, the read gets io.EOF.
func (h *half) endRead() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if _, ok := h.src.(*Stream); ok || h.reverse.writing == nil {
		return h.reverse.writeErr
	}
	done := h.reverse.writing
	h.mu.Unlock()
	select {
	case <-done:
	case <-time.After(settle): // the write waits for a slow reader and has got no error
	}
	h.mu.Lock()
	return h.reverse.writeErr
}

// reset reports whether the error of a write means more than that the other end has closed.
// Then the end of its data may be missing.
func reset(err error) bool { return err != nil && !errors.Is(err, syscall.EPIPE) }

// cutAfterWrites is Cut after the data already written.
func cutAfterWrites(c io.Closer, err error) {
	if s, ok := c.(interface{ CloseWithError(err error) }); ok {
		s.CloseWithError(err)
		return
	}
	Cut(c, err)
}

// Cut closes a connection such that its peer does not mistake this for an orderly end.
func Cut(c io.Closer, err error) {
	switch c := c.(type) {
	case interface{ Abort(err error) }: // a *Stream, or a wrapper of one
		c.Abort(err)
		return
	case interface{ SetLinger(sec int) error }:
		c.SetLinger(0) //nolint:errcheck // then the close is orderly
	}
	c.Close()
}
