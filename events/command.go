package events

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Command asks a host to do something to one process. It is stored before Send
// returns, and executed at most once however often host daemons die.
type Command struct {
	ID       string // unique; a repeated Send with the same ID within two minutes is stored once
	Tenant   string
	Process  process.ID
	Deadline time.Time // a host that reads it later refuses it; zero: none
	Body     CommandBody

	Rev   uint64 // place in the host's commands, set on reading; grows
	reply string // subject of the answer
}

// CommandBody is one of Start, Stdin, Signal, Resize or Ask.
//
//sumtype:decl
type CommandBody interface{ command() }

// Start starts a process. Its outcome is told by the process's record.
type Start struct{ Spec process.Spec }

// Stdin writes Data to the process's stdin (or terminal), then closes it if EOF.
type Stdin struct {
	Data []byte
	EOF  bool
}

// Signal sends a signal to the process group.
type Signal struct{ Signal int32 }

// Resize sets the terminal's size.
type Resize struct{ Size process.Size }

// Ask is a question to the sandbox that is no event: a small file written or
// read. Process names the sandbox only. Data is at most MaxAsk bytes.
type Ask struct {
	Method string // "stat", "read", "write"
	Path   string
	User   string
	Data   []byte
	Mode   uint32
}

// MaxAsk is the most bytes an Ask or its Reply may carry.
const MaxAsk = 512 << 10

func (Start) command()  {}
func (Stdin) command()  {}
func (Signal) command() {}
func (Resize) command() {}
func (Ask) command()    {}

// Reply answers a command.
type Reply struct {
	Command string
	Err     error // what the host could not do; nil: done
	Offset  uint64
	Data    []byte
}

var errPending = errors.New("pending")

// Send stores c for host. An error of kind.Unavailable means that it may or may
// not be stored: send it again with the same ID.
func (l *Log) Send(ctx context.Context, host string, c Command) error { return errPending }

// Call sends c and waits for the host's reply or ctx's end. Errors are those of
// Send and those the host replied.
func (l *Log) Call(ctx context.Context, host string, c Command) (Reply, error) {
	return Reply{}, errPending
}

// Reply answers c if its sender waits for it; otherwise it does nothing. It
// does not wait for the answer to be stored.
func (l *Log) Reply(c Command, r Reply) {}

// Commands calls f for each command of host after rev, in order, then for new
// ones as they come, until ctx ends or f fails. Everything f needs to keep must
// be kept before it returns: the Command's memory is its own.
func (l *Log) Commands(ctx context.Context, host string, rev uint64, f func(Command) error) error {
	return errPending
}

// Expired reports whether c must not be executed any more.
func (c *Command) Expired(now time.Time) error {
	if !c.Deadline.IsZero() && now.After(c.Deadline) {
		return kind.New(kind.Deadline, "command", c.ID, "the command came too late")
	}
	return nil
}
