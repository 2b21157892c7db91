package backend

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/codex/httpclient"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Processes starts, finds and reads processes. It is implemented by [record.Gateway].
type Processes interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	Processes(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	ActiveProcesses(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	Tail(ctx context.Context, p core.Principal, id process.ID) (record.Tail, error)
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error)
}

// Controls act on running processes.
type Controls interface {
	SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error
	SendInputOnce(ctx context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
}

// EgressOpener opens connections to the egress proxies of sandboxes.
type EgressOpener interface {
	OpenEgress(ctx context.Context, p core.Principal, sbx sandbox.ID) (*mux.Stream, error)
}

// Operations are the operations of the gateway that sessions use.
type Operations interface {
	Processes
	Controls
	core.FileOpener
	EgressOpener
}

// Backend serves sessions in any sandbox. Its methods may be called concurrently.
type Backend struct {
	ops          Operations
	descriptions descriptions
}

// New returns a Backend over ops.
func New(ops Operations) *Backend { return &Backend{ops: ops} }

// Services returns what a session does in a sandbox.
func (b *Backend) Services(p core.Principal, sbx sandbox.ID, a session.Attachment) *session.Services {
	s := &sandboxSession{b: b, ops: b.ops, p: p, sbx: sbx, session: a.Session(), fresh: !a.Resumed(), started: make(map[string]bool)}
	return &session.Services{
		Attachment: a, Processes: s, Records: s, Controls: s, Environment: s,
		Filesystem: &filesystem{ops: b.ops, p: p, sbx: sbx},
		HTTP: httpclient.New(func(ctx context.Context) (net.Conn, error) {
			stream, err := b.ops.OpenEgress(ctx, p, sbx)
			if err != nil {
				return nil, err
			}
			return stream, nil
		}, nil),
	}
}

// End kills the processes of a session.
func (b *Backend) End(ctx context.Context, p core.Principal, sbx sandbox.ID, id string) error {
	s := &sandboxSession{b: b, ops: b.ops, p: p, sbx: sbx, session: id}
	all, err := s.Running(ctx)
	for _, proc := range all {
		if failed := s.Signal(ctx, proc.ID, sigKill); failed != nil && !kind.Is(failed, kind.NotFound) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

const sigKill = 9

// retained is how long the name of a process stays in use after its end.
const retained = 80 * time.Second

// tagPrefix begins the tag of a process of a session: prefix, session, colon, name.
const tagPrefix = "codex:"

func (s *sandboxSession) prefix() string { return tagPrefix + s.session + ":" }

// processOf returns the process that an entry of the catalog describes.
func (s *sandboxSession) processOf(sum *process.Summary) session.Process {
	return session.Process{
		ID: sum.ID, Name: strings.TrimPrefix(*sum.Spec.Tag, s.prefix()),
		TTY: sum.Spec.PTY != nil, Stdin: sum.Spec.Stdin,
	}
}

// neverRan reports whether a process ended before any of it ran.
func neverRan(sum *process.Summary) bool {
	return sum.Exit != nil && sum.Exit.Cause == process.CauseNotStarted
}
