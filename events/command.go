package events

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

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
	Body     CommandBody

	Rev   uint64 // position in the host's commands, set on reading; increases
	reply string // subject for the reply
}

// CommandBody is one of Start, Stdin, Signal, Resize, TakeSnapshot or Drain.
//
//sumtype:decl
type CommandBody interface{ command() }

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

// commands is the part of a Log that carries commands to hosts, and their replies.
type commands struct{ *conn }

// Send stores c for host, once. It retries through outages until ctx ends; after an error
// of kind.Unavailable c may or may not be stored.
func (l *commands) Send(ctx context.Context, host string, c Command) error {
	data, err := encodeCommand(&c)
	if err != nil {
		return kind.Wrap(kind.Internal, "command", c.ID, err)
	}
	msg := &nats.Msg{Subject: commandSubject(host), Data: data, Header: nats.Header{"Nats-Msg-Id": {c.ID}}}
	for try := 0; ; {
		once, cancel := l.boundAppend(ctx, msg.Subject)
		_, err := l.publishMsg(once, msg)
		cancel()
		if err == nil {
			return nil
		}
		if err := l.unwritable(ctx, msg.Subject); err != nil {
			return err
		}
		if !l.backoff(ctx, &try) {
			return unavailable("command", c.ID, err)
		}
	}
}

// Call sends c and waits for the host's reply or the end of ctx. It returns the errors of
// Send and those in the reply.
func (l *commands) Call(ctx context.Context, host string, c Command) (Reply, error) {
	token := l.replies.token()
	ch, done := l.replies.await(token, 1)
	defer done()
	c.reply = streams.ReplyPrefix + l.id + "." + token
	back := l.onReconnect()
	if err := l.Send(ctx, host, c); err != nil {
		return Reply{}, err
	}
	for {
		var data []byte
		select {
		case msg := <-ch:
			data = msg.Data
		case <-back:
			// The reply may have arrived while the connection was down.
			back = l.onReconnect()
			got, err := l.directGet(ctx, streams.IO, getRequest{Last: c.reply})
			if err != nil || len(got) == 0 {
				continue // the reply is still to come
			}
			data = got[0].data
		case <-ctx.Done():
			return Reply{}, &kind.Error{Op: "command", ID: c.ID, Kind: kind.Unavailable, Msg: "the host did not answer in time: try again", Err: ctx.Err()}
		}
		r, err := decodeReply(data)
		if err != nil {
			return Reply{}, kind.Wrap(kind.Internal, "command", c.ID, err)
		}
		return r, r.Err
	}
}

// Reply replies to c if its sender waits for that; otherwise it does nothing. It returns at
// once and retries in the background for as long as the sender waits.
func (l *commands) Reply(c Command, r Reply) {
	if !strings.HasPrefix(c.reply, streams.ReplyPrefix) {
		return
	}
	r.Command = c.ID
	data, err := encodeReply(&r)
	if err != nil {
		l.log.Warn("send reply failed", "command", c.ID, "err", err)
		return
	}
	go l.deliver(&nats.Msg{Subject: c.reply, Data: data}, c.Deadline)
}

// deliver publishes a reply until it is stored or its sender has stopped waiting.
func (l *commands) deliver(msg *nats.Msg, until time.Time) {
	if until.IsZero() {
		until = time.Now().Add(replyTimeout)
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	for try := 0; ; {
		_, err := l.publishMsg(ctx, msg)
		if err == nil || l.nc.IsClosed() {
			return
		}
		if !l.backoff(ctx, &try) {
			l.log.Warn("send reply failed", "subject", msg.Subject, "err", err)
			return
		}
	}
}

// replyTimeout bounds the retries of a reply whose command has no deadline.
const replyTimeout = 10 * time.Second

// Commands calls f for each command of host after rev, in order, and then for new ones as
// they arrive, until ctx ends or f fails. f may keep a Command's memory. Commands of an
// unknown kind are skipped.
func (l *commands) Commands(ctx context.Context, host string, rev uint64, f func(Command) error) error {
	feed, err := l.follow(streams.Commands, commandSubject(host), rev)
	if err != nil {
		return unavailable("read commands", host, err)
	}
	defer feed.close()
	for {
		msgs, err := feed.next(ctx, nil)
		if err != nil {
			return err
		}
		for _, m := range msgs {
			c, err := decodeCommand(m)
			if err != nil {
				l.log.Warn("skip command of unknown kind", "host", host, "rev", m.seq, "err", err)
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
