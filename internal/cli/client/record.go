package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// Event is one line of a record.
type Event struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`
	Data      *string   `json:"data"`
	B64       []byte    `json:"data_b64"`
	Offset    uint64    `json:"offset"`
	PID       uint32    `json:"pid"`
	ExitCode  *int      `json:"exit_code"`
	Signal    int       `json:"signal"`
	Cause     string    `json:"cause"`
	Message   string    `json:"message"`
	ErrorCode string    `json:"error_code"`
	Reason    string    `json:"reason"`
	EOF       bool      `json:"eof"`
	From      uint64    `json:"from"`
	To        uint64    `json:"to"`
	Stream    string    `json:"stream"`
	Dropped   uint64    `json:"dropped"`
	Omitted   uint64    `json:"bytes"`
	TimeoutMS int64     `json:"timeout_ms"`

	out  []byte // output decoded without encoding/json
	Line []byte `json:"-"` // the line as received, with its line end
}

// Bytes returns the output in a stdout, stderr or pty event.
func (e *Event) Bytes() []byte {
	switch {
	case e.out != nil:
		return e.out
	case e.Data != nil:
		return []byte(*e.Data)
	}
	return e.B64
}

// Lines is an open stream of NDJSON.
type Lines struct {
	in     *bufio.Reader
	body   io.Closer
	silent *time.Timer
	cancel context.CancelFunc
}

const (
	// keepalive is the interval of keepalives that the gateway is asked for. A
	// connection without any line for the time deaf counts as broken.
	keepalive      = "10" // seconds
	silenceTimeout = 35 * time.Second
)

// errSilent reports a connection without even keepalives.
var errSilent = fmt.Errorf("the gateway sent nothing for %v", silenceTimeout)

// Lines opens a stream of NDJSON. It asks for keepalives.
func (c *Client) Lines(ctx context.Context, r *Request) (*Lines, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(context.Canceled) }
	silent := time.AfterFunc(silenceTimeout, func() { cancel(errSilent) })
	r.Header = map[string]string{"Accept": "application/x-ndjson", "Keepalive-Ping-Interval": keepalive}
	resp, err := c.Open(ctx, r) //nolint:bodyclose // close closes it
	if err != nil {
		silent.Stop()
		stop()
		return nil, err
	}
	return &Lines{in: bufio.NewReaderSize(resp.Body, 256<<10), body: resp.Body, silent: silent, cancel: stop}, nil
}

// Close closes the stream.
func (l *Lines) Close() {
	l.silent.Stop()
	l.cancel()
	l.body.Close()
}

// Raw returns the next complete line with its line end. It is valid until the next call.
func (l *Lines) Raw() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		var rest []byte
		line = append([]byte(nil), line...)
		rest, err = l.in.ReadBytes('\n')
		line = append(line, rest...)
	}
	if err != nil && !l.silent.Stop() {
		return line, errSilent // the timer canceled the request
	}
	l.silent.Reset(silenceTimeout)
	return line, WithMessage(err)
}

// Next decodes the next line into e, which is valid until the next call.
func (l *Lines) Next(e *Event) error {
	line, err := l.Raw()
	if err != nil {
		return err
	}
	*e = Event{Line: line}
	if decodeOutput(line, e) {
		return nil
	}
	if err := json.Unmarshal(line, e); err != nil {
		return fmt.Errorf("read an event: %w", WithMessage(err))
	}
	e.Line = line
	return nil
}

// resumeTimeout is how long a broken stream is retried.
const resumeTimeout = 10 * time.Minute

// Follow calls f for each event of a record after the given one, each once and in order,
// until its end or an error of f. When the connection breaks it resumes after the last
// event and calls report.
func (c *Client) Follow(ctx context.Context, id string, after uint64, report func(string, ...any), f func(*Event) error) error {
	broke := time.Time{}
	for wait := time.Duration(0); ; wait = min(max(2*wait, 20*time.Millisecond), 2*time.Second) {
		if wait > 0 && !waiting.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
		was := after
		done, err := c.followOnce(ctx, id, &after, report, &broke, f)
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case after > was:
			wait, broke = 0, time.Time{}
		}
		if broke.IsZero() {
			broke = time.Now()
			report("connection to process %s lost after event %d (%v); resuming. To continue later: %s", id, after, err, attachCommandLine(id, after))
		} else if time.Since(broke) > resumeTimeout {
			return &BrokenError{id, after, err}
		}
	}
}

// BrokenError reports a stream that could not be resumed. The process may still run.
type BrokenError struct {
	id    string
	after uint64 // last event received
	err   error
}

// Error returns the cause and the command that continues.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the connection to process %s could not be resumed after event %d (%v). To continue: %s", e.id, e.after, e.err, attachCommandLine(e.id, e.after))
}

// Unwrap returns the cause of the last failure.
func (e *BrokenError) Unwrap() error { return e.err }

// attachCommandLine returns the command that attaches to a process after an event.
func attachCommandLine(id string, after uint64) string {
	return fmt.Sprintf("millrace attach --after %d %s", after, id)
}

// followOnce follows on one connection. done reports that a new connection would not help.
func (c *Client) followOnce(ctx context.Context, id string, after *uint64, report func(string, ...any), broke *time.Time, f func(*Event) error) (done bool, err error) {
	l, err := c.Events(ctx, id, *after, true)
	if err != nil {
		return !Retryable(err), err
	}
	defer l.Close()
	if !broke.IsZero() {
		report("resumed after event %d, %v later", *after, time.Since(*broke).Round(time.Millisecond))
		*broke = time.Time{}
	}
	var e Event
	for {
		if err := l.Next(&e); err != nil {
			return false, err
		}
		switch {
		case e.Seq == 0 && e.Type == "reconnect":
			return false, errors.New("the gateway is shutting down")
		case e.Seq == 0 && e.Type == "error":
			return true, errors.New(e.Message)
		case e.Seq == 0 || e.Seq <= *after:
			continue // a keepalive or a repeated event
		case e.Seq != *after+1 && e.Type != "gap":
			return true, fmt.Errorf("event %d follows event %d: the gateway skipped events without reporting a gap", e.Seq, *after)
		}
		if err := f(&e); err != nil {
			return true, err
		}
		*after = e.Seq
		if e.Type == "end" {
			return true, nil
		}
	}
}
