package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// Feeder forwards input to a process. The process's record acknowledges the bytes taken
// (stdin_ack), so that bytes whose response was lost are sent again only when they cannot
// arrive any more.
type Feeder struct {
	c  *Client
	id string

	mu    sync.Mutex
	acked uint64 // bytes that the process took
	eof   bool
	moved chan struct{} // closed and replaced when acked or eof changes
}

const (
	InputChunk = 64 << 10 // bytes per read of input
	maxRequest = 1 << 20  // bytes of input per request
	// commandTimeout is longer than a gateway lets a command wait for its host: input
	// that was not taken by then never will be.
	commandTimeout = 15 * time.Second
)

// NewFeeder returns a feeder of a process.
func NewFeeder(c *Client, id string) *Feeder {
	return &Feeder{c: c, id: id, moved: make(chan struct{})}
}

// Ack processes a stdin_ack event.
func (f *Feeder) Ack(e *Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked = max(f.acked, e.Offset)
	f.eof = f.eof || e.EOF
	close(f.moved)
	f.moved = make(chan struct{})
}

// InputEnd is what the end of the local input does to the process.
type InputEnd int

const (
	EndClose     InputEnd = iota // closes its standard input
	EndCharacter                 // sends the end-of-file character to its terminal
	EndNothing                   // nothing
)

// Feed forwards in until its end, or until the process takes no more input. The latter is
// not an error: a process may end before its input does.
func (f *Feeder) Feed(ctx context.Context, in io.Reader, atEnd InputEnd) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pieces := readAhead(ctx, in)
	var sent uint64
	var last byte
	for p := range pieces {
		p = p.join(pieces)
		if n := len(p.data); n > 0 {
			last = p.data[n-1]
			if err := f.send(ctx, &sent, p.data, false); err != nil {
				return ignoreClosed(err)
			}
		}
		switch {
		case errors.Is(p.err, io.EOF):
			return ignoreClosed(f.finish(ctx, &sent, last, atEnd))
		case p.err != nil:
			return p.err
		}
	}
	return nil
}

// piece is the result of one read.
type piece struct {
	data []byte
	err  error
}

// readAhead reads in, until it or ctx ends, while earlier pieces are sent. Its goroutine
// may stay blocked in Read after that.
func readAhead(ctx context.Context, in io.Reader) <-chan piece {
	pieces := make(chan piece, maxRequest/InputChunk)
	go func() {
		defer close(pieces)
		for {
			buf := make([]byte, InputChunk)
			n, err := in.Read(buf)
			select {
			case pieces <- piece{buf[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return pieces
}

// join returns p merged with the pieces that are already available.
func (p piece) join(pieces <-chan piece) piece {
	for p.err == nil && len(p.data) <= maxRequest-InputChunk {
		select {
		case next, ok := <-pieces:
			if !ok {
				return p
			}
			p = piece{append(p.data, next.data...), next.err}
		default:
			return p
		}
	}
	return p
}

// finish forwards the end of an input, whose last byte was last; 0 if it was empty.
func (f *Feeder) finish(ctx context.Context, sent *uint64, last byte, how InputEnd) error {
	switch how {
	case EndClose:
		return f.send(ctx, sent, nil, true)
	case EndCharacter:
		// Ctrl-D means end of file only at the beginning of a line; within a line it
		// only flushes the line.
		if last != '\n' && last != 0 {
			if err := f.send(ctx, sent, []byte{ctrlD}, false); err != nil {
				return err
			}
		}
		return f.endTerminal(ctx, sent)
	case EndNothing:
	}
	return nil
}

const ctrlD = 0x04

// endTerminal sends Ctrl-D until the process ends. The end of a pipe reaches every reader,
// but a terminal delivers a Ctrl-D to only one, or to no reader if a shell changes the
// terminal's mode in between.
func (f *Feeder) endTerminal(ctx context.Context, sent *uint64) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		if err := f.send(ctx, sent, []byte{ctrlD}, false); err != nil {
			return err
		}
		if !waiting.Sleep(ctx, wait) {
			return nil
		}
	}
}

// ignoreClosed drops errors that mean that the process reads no more input.
func ignoreClosed(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Status == http.StatusNotFound || e.Status == http.StatusConflict || e.Status == http.StatusPreconditionFailed) {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// send forwards data, then the end if eof, and returns when the process has taken both.
func (f *Feeder) send(ctx context.Context, sent *uint64, data []byte, eof bool) error {
	for {
		err := f.c.Input(ctx, f.id, data, eof)
		if err == nil {
			*sent += uint64(len(data))
			return nil
		}
		if !Retryable(err) {
			return err
		}
		// It is unknown whether the process took it: wait for the record, or until
		// the command has expired.
		took, done, werr := f.await(ctx, *sent+uint64(len(data)), eof)
		if done || werr != nil {
			*sent = max(*sent, took)
			return werr
		}
		data = data[min(uint64(len(data)), took-min(took, *sent)):]
		*sent = max(*sent, took)
	}
}

// await waits until the process took upTo bytes, and the end if eof, or until all commands
// that were sent have expired.
func (f *Feeder) await(ctx context.Context, upTo uint64, eof bool) (took uint64, done bool, err error) {
	late := time.NewTimer(commandTimeout)
	defer late.Stop()
	for {
		f.mu.Lock()
		took, moved := f.acked, f.moved
		done := took >= upTo && (!eof || f.eof)
		f.mu.Unlock()
		if done {
			return took, true, nil
		}
		select {
		case <-moved:
		case <-late.C:
			return took, false, nil
		case <-ctx.Done():
			return took, false, ctx.Err()
		}
	}
}
