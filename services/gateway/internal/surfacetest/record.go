package surfacetest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Record is a scripted record: its events have dense seqs from 1.
type Record struct {
	Name   string
	Spec   process.Spec
	Events []process.Event
}

// PID is the pid in every scripted record.
const PID = 4711

// ID is the process of every scripted record.
var ID = process.IDOf("01jz0000000000000000000000", sandbox.ID("isurfacetest0000000001"))

// epoch is when every scripted record begins.
var epoch = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// NewRecord returns a scripted record. It begins with Accepted and Started, the latter
// unless bodies begin with Failed or Lost. The offsets of Wrote and Omitted are computed.
func NewRecord(name string, spec process.Spec, bodies ...process.Body) *Record {
	r := &Record{Name: name, Spec: spec}
	r.add(process.Accepted{Spec: spec.Public(), Command: "c", Tenant: "t"})
	started := true
	if len(bodies) > 0 {
		_, failed := bodies[0].(process.Failed)
		_, lost := bodies[0].(process.Lost)
		started = !failed && !lost
	}
	if started {
		r.add(process.Started{PID: PID})
	}
	var offsets [process.PTY + 1]uint64
	for _, b := range bodies {
		switch w := b.(type) {
		case process.Wrote:
			w.Offset = offsets[w.Stream]
			offsets[w.Stream] += uint64(len(w.Data))
			b = w
		case process.Omitted:
			w.Offset = offsets[w.Stream]
			offsets[w.Stream] += w.Bytes
			b = w
		default:
		}
		r.add(b)
	}
	return r
}

func (r *Record) add(b process.Body) {
	seq := process.Seq(len(r.Events) + 1)
	r.Events = append(r.Events, process.Event{Seq: seq, Time: epoch.Add(time.Duration(seq) * time.Millisecond), Body: b})
}

// Output returns all bytes of a stream.
func (r *Record) Output(s process.Stream) []byte {
	var out []byte
	for _, e := range r.Events {
		if w, ok := e.Body.(process.Wrote); ok && w.Stream == s {
			out = append(out, w.Data...)
		}
	}
	return out
}

// Out returns a frame of stdout.
func Out(s string) process.Body { return process.Wrote{Stream: process.Stdout, Data: []byte(s)} }

// Err returns a frame of stderr.
func Err(s string) process.Body { return process.Wrote{Stream: process.Stderr, Data: []byte(s)} }

// TTY returns a frame of a terminal.
func TTY(s string) process.Body { return process.Wrote{Stream: process.PTY, Data: []byte(s)} }

// Code returns the end of a process that exited.
func Code(n int32) process.Body {
	return process.Finished{Exit: process.Exit{Code: &n, Cause: process.CauseExited}}
}

// Signal returns the end of a process that a signal ended.
func Signal(n int32, c process.Cause) process.Body {
	return process.Finished{Exit: process.Exit{Signal: n, Cause: c}}
}

// Unseen returns the end of a process whose exit was not observed.
func Unseen(c process.Cause) process.Body {
	return process.Finished{Exit: process.Exit{Cause: c}}
}

// AllBytes returns every byte value.
func AllBytes() string {
	var b [256]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}

// Records returns the scripts that Run tests at every position; each ends with an
// observed exit.
func Records() []*Record {
	piped, typed, tty := process.Spec{Cmd: "x"}, process.Spec{Cmd: "x", Stdin: true}, process.Spec{Cmd: "x", PTY: &process.Size{Cols: 80, Rows: 24}}
	return []*Record{
		NewRecord("no output", piped, Code(0)),
		NewRecord("one line", piped, Out("hello\n"), Code(0)),
		NewRecord("no line end", piped, Out("abc"), Code(3)),
		NewRecord("partial lines of both streams", piped, Out("a"), Err("b"), Out("c\nd"), Err("\ne\n"), Out("f"), Err("g"), Code(0)),
		NewRecord("many lines in one frame", piped, Out("x"+strings.Repeat("line\n", 200)+"y"), Err("z"), Out("\n"), Code(0)),
		NewRecord("exited before the last output", piped, Out("a\n"), exited(), Out("from a child"), Err("and\nmore"), Code(0)),
		NewRecord("events that are not output", typed, process.StdinAcked{Offset: 3}, Out("a"), process.Signaled{Signal: 15}, Out("b"), Signal(15, process.CauseKilled)),
		NewRecord("every byte", piped, Out(AllBytes()), Err(AllBytes()), Out(AllBytes()), Code(0)),
		NewRecord("runes cut in two", typed, Out("h\xc3"), Out("\xa4\xf0\x9f"), Err("\xe2"), Out("\x8c\x88\n"), Err("\x82\xac"), Out("\xff\xfe\xc3"), Code(0)),
		NewRecord("sentinels", piped, Out("\x01\x01\x01\n\ndata: x\n\n{}\r\n0\r\n\r\n"), Err("event: end\n"), Code(255)),
		NewRecord("a terminal", tty, TTY("$ "), process.Resized{Size: process.Size{Cols: 10, Rows: 10}}, TTY("l\x1b[31m"), TTY("\r\n"), Signal(9, process.CauseKilled)),
		NewRecord("output that is not kept", piped, Out("a\n"), process.Omitted{Stream: process.Stdout, Bytes: 5}, Out("b\n"), process.Omitted{Stream: process.Stderr, Bytes: 7}, Code(0)),
		random(typed), random(piped),
	}
}

func exited() process.Body {
	var zero int32
	return process.Exited{Exit: process.Exit{Code: &zero, Cause: process.CauseExited}}
}

// random returns a record of small frames with few line ends; it is deterministic.
func random(spec process.Spec) *Record {
	rng := rand.New(rand.NewPCG(1, 2))
	var bodies []process.Body
	for range 60 {
		data := bytes.Map(func(r rune) rune {
			if rng.IntN(4) == 0 {
				return '\n'
			}
			return r
		}, bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, 1+rng.IntN(9)))
		bodies = append(bodies, process.Wrote{Stream: process.Stdout + process.Stream(rng.IntN(2)), Data: data})
	}
	name := "random lines"
	if spec.Stdin {
		name = "random chunks"
	}
	return NewRecord(name, spec, append(bodies, Code(0))...)
}

// Source yields a record (stream.Source).
type Source struct {
	record *Record
	at     int
	Batch  int             // events per batch; 0: all
	Hold   int             // events before it blocks; 0: never
	Nexts  func()          // called by each Next; may be nil
	Closed bool            // Close was called
	Wake   <-chan struct{} // unblocks it when closed; may be nil
}

// Source returns a Source of the events after the given seq.
func (r *Record) Source(after process.Seq) *Source { return &Source{record: r, at: int(after)} }

// Next returns the next events.
func (s *Source) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	if s.Nexts != nil {
		s.Nexts()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Hold > 0 && s.at >= s.Hold {
		t := time.NewTimer(idle)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
			return nil, nil
		case <-s.Wake:
			s.Hold = 0
		}
	}
	left := s.record.Events[s.at:]
	if len(left) == 0 {
		return nil, io.EOF
	}
	if s.Batch > 0 {
		left = left[:min(s.Batch, len(left))]
	}
	if s.Hold > 0 {
		left = left[:min(s.Hold-s.at, len(left))]
	}
	s.at += len(left)
	return left, nil
}

// After returns the seq of the last event returned.
func (s *Source) After() process.Seq { return process.Seq(s.at) }

// Close records that it was called.
func (s *Source) Close() { s.Closed = true }

// Drained returns the cause with which a gateway ends its streams in a drain.
func Drained() error { return kind.New(kind.Unavailable, "stream", "", "going away") }
