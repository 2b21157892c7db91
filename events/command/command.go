package command

import (
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// Command is a request to a host, most often about one process. It is stored before Send
// returns, and executed at most once however often the host restarts.
type Command struct {
	ID       string // unique; a repeated Send with the same ID within two minutes is stored once
	Tenant   string
	Process  process.ID // subject of the command; for TakeSnapshot only its sandbox counts; empty for Drain
	Deadline time.Time  // a host rejects the command after it; zero: none
	Body     Body

	Rev   uint64 // position in the host's commands, set on reading; increases
	reply string // subject for the reply
}

// Body is one of Start, Stdin, Signal, Resize, TakeSnapshot or Drain.
//
//sumtype:decl
type Body interface{ command() }

// Start starts a process. The outcome is in the process's record.
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

// TakeSnapshot takes a snapshot of the sandbox. Its reply follows once the snapshot is
// complete and recorded in the log.
type TakeSnapshot struct {
	ID       sandbox.SnapshotID
	Memory   bool
	Name     string
	Internal bool
	Layer    string // of a build; see sandbox.Snapshot
}

// Drain stops or resumes the placement of sandboxes on a host.
type Drain struct{ Drain bool }

func (Start) command()        {}
func (Stdin) command()        {}
func (Signal) command()       {}
func (Resize) command()       {}
func (TakeSnapshot) command() {}
func (Drain) command()        {}

// Reply answers a command.
type Reply struct {
	Command string
	Err     error // why the host failed; nil: done
	Offset  uint64
}

// Queue carries commands to hosts, and their replies. Its methods may be called
// concurrently.
type Queue struct{ conn *store.Conn }

// NewQueue returns a Queue.
func NewQueue(conn *store.Conn) *Queue { return &Queue{conn} }

// Send stores c for host, once. It retries through outages until ctx ends; after an error
// of kind.Unavailable c may or may not be stored.
func (l *Queue) Send(ctx context.Context, host string, c Command) error {
	data, err := encodeCommand(&c)
	if err != nil {
		return kind.Wrap(kind.Internal, "command", c.ID, err)
	}
	return l.conn.PutOnce(ctx, commandSubject(host), c.ID, data)
}

// Call sends c and waits for the host's reply or the end of ctx. It returns the errors of
// Send and those in the reply.
func (l *Queue) Call(ctx context.Context, host string, c Command) (Reply, error) {
	reply := l.conn.NewReply()
	defer reply.Close()
	c.reply = reply.Subject
	if err := l.Send(ctx, host, c); err != nil {
		return Reply{}, err
	}
	data, err := reply.Wait(ctx)
	if err != nil {
		return Reply{}, &kind.Error{Op: "command", ID: c.ID, Kind: kind.Unavailable, Msg: "the host did not answer in time: try again", Err: err}
	}
	r, err := decodeReply(data)
	if err != nil {
		return Reply{}, kind.Wrap(kind.Internal, "command", c.ID, err)
	}
	return r, r.Err
}

// Reply replies to c if its sender waits for that; otherwise it does nothing. It returns at
// once and retries in the background for as long as the sender waits.
func (l *Queue) Reply(c Command, r Reply) {
	if !strings.HasPrefix(c.reply, streams.ReplyPrefix) {
		return
	}
	r.Command = c.ID
	data, err := encodeReply(&r)
	if err != nil {
		l.conn.Log().Warn("send reply failed", "command", c.ID, "err", err)
		return
	}
	go l.deliver(c.reply, data, c.Deadline)
}

// deliver publishes a reply until it is stored or its sender has stopped waiting.
func (l *Queue) deliver(subject string, data []byte, until time.Time) {
	if until.IsZero() {
		until = time.Now().Add(replyTimeout)
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	for try := 0; ; {
		_, err := l.conn.PublishPlain(ctx, subject, data)
		if err == nil || l.conn.Closed() {
			return
		}
		if !l.conn.Backoff(ctx, &try) {
			l.conn.Log().Warn("send reply failed", "subject", subject, "err", err)
			return
		}
	}
}

// replyTimeout bounds the retries of a reply whose command has no deadline.
const replyTimeout = 10 * time.Second

// Commands calls f for each command of host after rev, in order, and then for new ones as
// they arrive, until ctx ends or f fails. f may keep a Command's memory. Commands of an
// unknown kind are skipped.
func (l *Queue) Commands(ctx context.Context, host string, rev uint64, f func(Command) error) error {
	feed, err := l.conn.Follow(streams.Commands, commandSubject(host), rev)
	if err != nil {
		return store.Unavailable("read commands", host, err)
	}
	defer feed.Close()
	for {
		msgs, err := feed.Next(ctx, nil)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			c, err := decodeCommand(m)
			if err != nil {
				l.conn.Log().Warn("skip command of unknown kind", "host", host, "rev", m.Seq, "err", err)
				continue
			}
			if err := f(c); err != nil {
				return err
			}
		}
	}
}

// Expired returns an error if c must not be executed any more.
func (c *Command) Expired(now time.Time) error {
	if !c.Deadline.IsZero() && now.After(c.Deadline) {
		return kind.New(kind.Deadline, "command", c.ID, "the command came too late")
	}
	return nil
}

func commandSubject(host string) string { return "cmd." + host }
