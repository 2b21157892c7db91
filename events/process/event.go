package process

import (
	"fmt"
	"time"
)

// Seq is the position of an event in its record; dense, the first is 1.
type Seq = uint64

// Event is one fact of a process's record.
type Event struct {
	Seq  Seq
	Time time.Time // by the writer's clock; not monotonic
	Body Body
}

// Body is one of Accepted, Started, Wrote, Omitted, StdinAcked, Resized, Signaled,
// Truncated, Gap, Exited, Finished, Lost or Failed.
//
//sumtype:decl
type Body interface{ kind() string }

// Stream is a source of output.
type Stream uint8

// The streams of a process; their numbers are stored.
const (
	Stdout Stream = 1
	Stderr Stream = 2
	PTY    Stream = 3
)

// String returns the stream's name on every wire.
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case PTY:
		return "pty"
	}
	return fmt.Sprintf("stream%d", uint8(s))
}

// Accepted is the first event: a host claimed the start. Later claims are rejected, so that
// one idempotency key starts one process.
type Accepted struct {
	Spec     Spec // without Env
	Command  string
	SpecHash []byte // of the Spec with Env
	Tenant   string

	// From is set if the process was not started in its sandbox but resumed there from a
	// memory snapshot, in which it was From. This record continues after From's event
	// After: both together have every byte once.
	From  ID
	After Seq
}

// Started reports that the process exists. A pid is an attribute, not a name, because pids
// are reused.
type Started struct{ PID uint32 }

// Wrote is output. Offset is that of Data[0] in its stream. Data is never empty; it is
// shared, and readers must not change it.
type Wrote struct {
	Stream Stream
	Offset uint64
	Data   []byte
}

// Omitted stands for output that is not kept: Bytes bytes from Offset on. It has the seq that their
// Wrote would have, so that the offsets and seqs after it are the same.
type Omitted struct {
	Stream Stream
	Offset uint64
	Bytes  uint64
}

// StdinAcked reports that the process's stdin accepted bytes up to Offset.
type StdinAcked struct {
	Offset  uint64
	Command string
	EOF     bool
}

// Resized is the terminal's new size.
type Resized struct{ Size Size }

// Signaled reports that a signal was sent to the process group.
type Signaled struct {
	Signal  int32
	Command string
}

// Truncated reports that output was dropped, beyond the quota or too long after the end of
// its sandbox: Dropped bytes so far.
type Truncated struct {
	Stream  Stream
	Dropped uint64
}

// Gap reports that events From to To cannot be read; its own seq is To. A reader creates
// one for a hole in a record. A writer stores one if the log lost the end of a record for
// good: the following events keep their seqs.
type Gap struct {
	From, To Seq
	Reason   string
}

// Exited is the end of the process itself; output of its children may follow.
type Exited struct{ Exit Exit }

// Finished is the last event of every record.
type Finished struct{ Exit Exit }

// Lost reports that the process can no longer be observed. It may still be running.
type Lost struct{ Reason string }

// Failed reports why the process never started. Kind is a kind.Kind.
type Failed struct {
	Kind    uint32
	Message string
}

// WithoutOutput returns events with an Omitted in place of each Wrote.
func WithoutOutput(events []Event) []Event {
	out := make([]Event, len(events))
	copy(out, events)
	for i := range out {
		if w, ok := out[i].Body.(Wrote); ok {
			out[i].Body = Omitted{Stream: w.Stream, Offset: w.Offset, Bytes: uint64(len(w.Data))}
		}
	}
	return out
}

func (Accepted) kind() string   { return "accepted" }
func (Started) kind() string    { return "start" }
func (w Wrote) kind() string    { return w.Stream.String() }
func (Omitted) kind() string    { return "omitted" }
func (StdinAcked) kind() string { return "stdin_ack" }
func (Resized) kind() string    { return "resized" }
func (Signaled) kind() string   { return "signaled" }
func (Truncated) kind() string  { return "truncated" }
func (Gap) kind() string        { return "gap" }
func (Exited) kind() string     { return "exited" }
func (Finished) kind() string   { return "end" }
func (Lost) kind() string       { return "lost" }
func (Failed) kind() string     { return "error" }

// Type returns the event's name on text surfaces.
func (e Event) Type() string { return e.Body.kind() }

// Cause is why a process ended.
type Cause string

// The causes are stored and shown under these names.
const (
	CauseExited      Cause = "exited"       // by itself, with a code
	CauseSignaled    Cause = "signaled"     // by a signal that Millrace did not send
	CauseKilled      Cause = "killed"       // by a signal sent on request
	CauseTimeout     Cause = "timeout"      // its timeout expired
	CauseOOM         Cause = "oom"          // out of memory
	CauseSandboxGone Cause = "sandbox_gone" // its sandbox ended
	CauseShimLost    Cause = "shim_lost"    // the sandbox's shim crashed
	CauseHostLost    Cause = "host_lost"    // its host stopped responding
	CauseNotStarted  Cause = "not_started"  // it never ran: see the Failed before
)

// Exit is how a process ended. If the end was not observed, Code is nil, never 0.
type Exit struct {
	Code    *int32 // 0..255; nil if ended by a signal or not observed
	Signal  int32  // 0: none
	Cause   Cause
	Message string
}

// Seen reports whether the process's end was observed.
func (x Exit) Seen() bool { return x.Code != nil || x.Signal != 0 }

// OK reports whether the process ended by itself with code 0.
func (x Exit) OK() bool { return x.Code != nil && *x.Code == 0 }
