package backendai

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/backendai/run"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

const (
	superviseEvery = time.Second
	// adoptAfter is how long a session runs before other gateways than the one that created it run
	// its commands, in case that one has died.
	adoptAfter = 3 * time.Second
	// batchTag is the tag of the process of a batch session's command.
	batchTag = "batch"
)

// supervisor does what no client waits for: it runs the start commands of sessions that were
// enqueued, and the commands of batch sessions, and ends those sessions. It keeps sessions that work
// from ending for being idle. Every gateway has one, and each of these may be done by several: a
// command is started once, and a session ends once.
type supervisor struct {
	h    *Handler
	kick chan struct{}

	mu  sync.Mutex
	own map[sandbox.ID]bool // sessions that this gateway created
	has map[sandbox.ID]bool // sessions whose commands were run here
}

func newSupervisor(h *Handler) *supervisor {
	return &supervisor{h: h, kick: make(chan struct{}, 1), own: make(map[sandbox.ID]bool), has: make(map[sandbox.ID]bool)}
}

// adopt has the commands of a session run as soon as it runs.
func (s *supervisor) adopt(id sandbox.ID) {
	s.mu.Lock()
	s.own[id] = true
	s.mu.Unlock()
	waiting.Notify(s.kick)
}

// run looks for what is to be done until ctx ends.
func (s *supervisor) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	t := time.NewTicker(superviseEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-s.kick:
		}
		now := time.Now()
		for _, st := range s.take(now) {
			wg.Go(func() {
				err := recovery.Do(s.h.cfg.Slog, "session commands", func() error { return s.commands(ctx, &st) })
				if err != nil && ctx.Err() == nil {
					s.h.cfg.Slog.Warn("run commands of session failed", "sandbox", st.ID, "err", err)
					s.drop(st.ID) // the next pass repeats it
				}
			})
		}
		s.touchWorking(ctx, now)
	}
}

// take returns the sessions whose commands are to be run here, and forgets those that have ended.
func (s *supervisor) take(now time.Time) []sandbox.State {
	s.mu.Lock() // before the view is read, so that what is adopted is in it
	defer s.mu.Unlock()
	all := s.h.cfg.All(func(st *sandbox.State) bool {
		_, batch := session.Command(st)
		return !st.Over() && (batch || session.Unwaited(st) && st.Request.Start != "")
	})
	own, has := s.own, s.has
	s.own, s.has = make(map[sandbox.ID]bool), make(map[sandbox.ID]bool)
	var out []sandbox.State
	for _, st := range all {
		s.own[st.ID], s.has[st.ID] = own[st.ID], has[st.ID]
		if st.IsRunning() && !has[st.ID] && (own[st.ID] || now.Sub(st.Started) > adoptAfter) {
			s.has[st.ID] = true
			out = append(out, st)
		}
	}
	return out
}

func (s *supervisor) drop(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.has, id)
}

// commands runs the commands of a session. The end of a batch session's is the end of the session.
func (s *supervisor) commands(ctx context.Context, st *sandbox.State) error {
	p := core.Principal{Tenant: st.Tenant}
	if session.Unwaited(st) && st.Request.Start != "" {
		s.h.cfg.Creator.RunTemplateCommand(ctx, p, st)
	}
	command, batch := session.Command(st)
	if !batch {
		return nil
	}
	exit, err := s.batch(ctx, p, st.ID, command)
	if kind.Is(err, kind.NotFound) || err == nil && exit.Cause == process.CauseSandboxGone {
		return nil // the session has ended
	}
	if err != nil {
		return err
	}
	err = s.h.cfg.Operations.EndSandbox(ctx, p, st.ID, session.Exited(codeOf(exit)))
	if kind.Is(err, kind.NotFound) {
		return nil
	}
	return err
}

// codeOf returns the exit code of a command as a shell does.
func codeOf(x *process.Exit) int {
	switch {
	case x.Signal != 0:
		return 128 + int(x.Signal)
	case x.Code != nil:
		return int(*x.Code)
	}
	return run.NotRun
}

// batch starts the command of a batch session, unless it was started, and waits for its end.
func (s *supervisor) batch(ctx context.Context, p core.Principal, id sandbox.ID, command string) (*process.Exit, error) {
	spec, tag := procs.Shell(command), batchTag
	spec.Tag, spec.Helper = &tag, false
	_, src, err := s.h.cfg.Operations.Start(ctx, p, id, spec, procs.StartOptions{IdempotencyKey: batchTag})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	for {
		batch, err := src.Next(ctx, 0)
		for _, e := range batch {
			if f, ok := e.Body.(process.Finished); ok {
				return &f.Exit, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil, kind.New(kind.Gone, "run batch", string(id), "the record of the command is incomplete")
		}
		if err != nil {
			return nil, err
		}
	}
}

// isBatch reports whether a process is the command of a batch session.
func isBatch(s *process.Summary) bool { return s.Spec.Tag != nil && *s.Spec.Tag == batchTag }

// touchWorking keeps the sessions whose runs or commands are active from ending for being idle.
func (s *supervisor) touchWorking(ctx context.Context, now time.Time) {
	for _, st := range s.h.cfg.All(func(st *sandbox.State) bool {
		return session.Name(st) != "" && st.IsRunning() && !st.Deadline.IsZero() && st.Deadline.Sub(now) < st.Request.Lifetime/2
	}) {
		if len(s.h.cfg.Active(st.ID, func(x *process.Summary) bool { return isRun(x) || isBatch(x) })) > 0 {
			s.h.touch(ctx, core.Principal{Tenant: st.Tenant}, &st)
		}
	}
}
