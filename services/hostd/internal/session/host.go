package session

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/services/hostd/internal/fair"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// HostConfig configures the sessions of a run. All fields are required.
type HostConfig struct {
	Name   string // name of the host
	Epoch  uint64 // of the run
	Limits wire.Limits

	Log      *events.Log
	View     *catalog.View
	Ring     *seal.Ring // opens environments in commands
	Commands Commands

	Abort context.CancelCauseFunc                                 // ends the run at once
	Fault func(point string) error                                // interrupts the host in tests
	Go    func(func())                                            // runs a function in the background
	Spawn func(what string, work func(ctx context.Context) error) // is Go until the run ends, and logs an error
	Slog  *slog.Logger
}

// Commands replies to the commands of a host.
type Commands interface {
	Answer(command.Command, command.Reply)
	Refuse(command.Command, error) // ends the command, too
	Charge(rev uint64, account *atomic.Int64, bytes int64)
	End(rev uint64)
}

// Host has what the sessions of one run share.
type Host struct {
	cfg  HostConfig
	pool link.Pool
	gate fair.Gate
}

// NewHost returns a host without sessions.
func NewHost(cfg HostConfig) *Host { return &Host{cfg: cfg} }

// Session returns the session of a sandbox, which is not connected.
func (h *Host) Session(cfg Config) *Session {
	ss := &Session{
		h: h, cfg: cfg, flow: h.gate.Flow(),
		ready: make(chan struct{}), drained: make(chan struct{}), lookups: make(chan struct{}, maxLookups),
		procs: make(map[string]*proc), forgotten: make(map[string]struct{}), pending: make(map[uint64]*pending),
	}
	ss.queue = queue{ss: ss, started: make(map[string]*proc), waiting: make(map[string][]command.Command)}
	return ss
}

// Start starts a process, whose environment is sealed, in the sandbox of a session; nil: its
// sandbox does not run here. Another command that starts the same process is ignored.
func (h *Host) Start(ss *Session, c command.Command, spec process.Spec) {
	p := h.newProc(ss, c.Process)
	open, err := spec.Open(h.cfg.Ring, c.Tenant, c.Process)
	spec.Hidden = ""
	p.start, p.spec, p.replies.starts, p.frame.err = &c, spec, []uint64{c.Rev}, err
	p.hash = open.Hash(h.cfg.Ring, c.Tenant, c.Process.Sandbox())
	open.Env = open.EnvOf(c.Process)
	p.frame.bytes = wire.AppendStart(nil, &wire.Start{Rev: c.Rev, Token: c.Process.Token(), Spec: process.AppendSpec(nil, &open)})
	if ss != nil {
		token := c.Process.Token()
		ss.mu.Lock()
		if ss.closed {
			p.ss = nil
		} else if known := ss.procs[token]; known != nil {
			ss.mu.Unlock()
			known.replies.holdCursor(c.Rev)
			return
		} else {
			ss.procs[token] = p
			ss.cfg.Requests.Add(1)
		}
		ss.mu.Unlock()
	}
	h.cfg.Spawn("process "+string(p.id), p.begin)
}

// Complete gives the record of a process that ended the end that the catalog has. The session is
// that of its sandbox, which must be ready; nil: its sandbox does not run here. A process that the
// sandbox's shim still has, or that another goroutine ends, is left to that one.
func (h *Host) Complete(ctx context.Context, ss *Session, id process.ID) error {
	p := h.newProc(ss, id)
	if ss != nil && !ss.enlist(p) {
		return nil
	}
	p.lose(process.Exit{Cause: process.CauseShimLost})
	if err := p.endOrphan(ctx); !kind.Is(err, kind.Fenced) {
		return err
	}
	return nil
}

// enlist adds p to the processes unless it is one of them already.
func (ss *Session) enlist(p *proc) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.procs[p.id.Token()] != nil {
		return false
	}
	ss.procs[p.id.Token()] = p
	return true
}
