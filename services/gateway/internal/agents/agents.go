package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	startTimeout = 20 * time.Second
	readyTimeout = 5 * time.Second
	interval     = time.Second // between two looks at the running agents
	sigTerm      = 15
)

// Processes starts and signals processes.
type Processes interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
}

// View has the processes of all sandboxes.
type View interface {
	Processes(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary
	ActiveProcesses(sbx sandbox.ID, keep func(*process.Summary) bool) []process.Summary
}

// Config configures Agents. All fields are required.
type Config struct {
	Processes Processes
	View      View
	Sync      func(ctx context.Context) error // waits until the view has everything stored before the call
	Hold      func(id sandbox.ID) (release func(), ok bool)
}

// Agents implements the operations on agents. Its methods may be called concurrently.
type Agents struct{ cfg Config }

// New returns Agents. It does no I/O.
func New(cfg Config) *Agents { return &Agents{cfg} }

// Start starts the agent of a sandbox, or finds the one that an earlier call with the same configuration
// started. It returns when the agent has started, or has failed to: from then on Status and Cancel find it.
func (a *Agents) Start(ctx context.Context, p core.Principal, sbx sandbox.ID, c bootstrap.Config, task bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, spec := range bootstrap.StartAgent(c, task) {
		_, src, err := a.cfg.Processes.Start(ctx, p, sbx, spec, procs.StartOptions{IdempotencyKey: fmt.Sprintf("%s %d", bootstrap.AgentTag, i)})
		if err != nil {
			return err
		}
		if _, agent := bootstrap.Agent(&spec); agent {
			err = awaitStart(ctx, src)
		} else {
			err = awaitExit(ctx, src)
		}
		src.Close()
		if err != nil {
			return kind.Wrap(kind.Unavailable, "start agent", string(sbx), err)
		}
	}
	return nil
}

// awaitStart reads a record until its process has started or will not start. The catalog has the process by
// then, but not yet when its record begins. A process whose first events fell out of retention has started.
func awaitStart(ctx context.Context, src stream.Source) error {
	for {
		batch, err := src.Next(ctx, startTimeout)
		for i := range batch {
			_, started := batch[i].Body.(process.Started)
			if _, ended := batch[i].Body.(process.Finished); started || ended {
				return nil
			}
		}
		if kind.Is(err, kind.Gone) {
			return nil
		}
		if err := cut(batch, err); err != nil {
			return err
		}
	}
}

// awaitExit reads a record to its end. Its error says that the process did not exit with code 0.
func awaitExit(ctx context.Context, src stream.Source) error {
	var output []byte
	for {
		batch, err := src.Next(ctx, startTimeout)
		for i := range batch {
			if out, ok := batch[i].Body.(process.Wrote); ok {
				output = append(output, out.Data...)
			}
			if end, ok := batch[i].Body.(process.Finished); ok && !end.Exit.OK() {
				return fmt.Errorf("write configuration: %s", output)
			} else if ok {
				return nil
			}
		}
		if err := cut(batch, err); err != nil {
			return err
		}
	}
}

// cut returns why no more events of a record follow a batch; nil if they do.
func cut(batch []process.Event, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err == nil && len(batch) == 0:
		return context.DeadlineExceeded
	}
	return err
}

// Sync makes Status return what was stored before the call.
func (a *Agents) Sync(ctx context.Context) error { return a.cfg.Sync(ctx) }

// State is how far an agent is.
type State string

// The states.
const (
	Running   State = "running"
	Completed State = "completed" // exit code 0
	Failed    State = "failed"
)

// Status is the status of an agent.
type Status struct {
	State State
	Exit  *int32 // exit code; nil while it runs, and if it was not observed
	Error string // why there is no exit code, although the agent has ended
}

// Status returns the status of the agent of a sandbox. ok is false if it has none.
func (a *Agents) Status(sbx sandbox.ID) (st Status, ok bool) {
	all := a.cfg.View.Processes(sbx, func(s *process.Summary) bool {
		_, agent := bootstrap.Agent(&s.Spec)
		return agent
	})
	if len(all) == 0 {
		return Status{}, false
	}
	return statusOf(&all[len(all)-1]), true // the others were refused before anything ran
}

func statusOf(s *process.Summary) Status {
	switch x := s.Exit; {
	case s.Active() || x == nil:
		return Status{State: Running}
	case x.OK():
		return Status{State: Completed, Exit: x.Code}
	case x.Code != nil:
		return Status{State: Failed, Exit: x.Code}
	case x.Signal != 0:
		code := 128 + x.Signal
		return Status{State: Failed, Exit: &code}
	default:
		return Status{State: Failed, Error: string(x.Cause)}
	}
}

// Cancel asks the agent of a sandbox to finish its work. It does nothing unless an agent with a task runs.
func (a *Agents) Cancel(ctx context.Context, p core.Principal, sbx sandbox.ID) error {
	if err := a.Sync(ctx); err != nil {
		return err
	}
	for _, s := range a.cfg.View.ActiveProcesses(sbx, hasTask) {
		a.awaitReady(ctx, p, sbx)
		if err := a.cfg.Processes.Signal(ctx, p, s.ID, sigTerm); err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
	}
	return nil
}

// awaitReady waits until the agent of a sandbox handles signals: one that has just been created would die of
// them, without its result and exit code. If that cannot be found out in time, the agent is signaled anyway.
func (a *Agents) awaitReady(ctx context.Context, p core.Principal, sbx sandbox.ID) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	_, src, err := a.cfg.Processes.Start(ctx, p, sbx, bootstrap.AwaitAgent(), procs.StartOptions{})
	if err != nil {
		return
	}
	defer src.Close()
	awaitExit(ctx, src) //nolint:errcheck // see above
}

func hasTask(s *process.Summary) bool {
	task, agent := bootstrap.Agent(&s.Spec)
	return agent && task
}

// Run holds the sandboxes of running agents until ctx ends.
func (a *Agents) Run(ctx context.Context) error {
	held := make(map[sandbox.ID]func())
	defer func() {
		for _, release := range held {
			release()
		}
	}()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		a.hold(held)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// hold updates the held sandboxes.
func (a *Agents) hold(held map[sandbox.ID]func()) {
	running := make(map[sandbox.ID]bool, len(held))
	for _, s := range a.cfg.View.ActiveProcesses("", hasTask) {
		id := s.ID.Sandbox()
		running[id] = true
		if held[id] != nil {
			continue
		}
		if release, ok := a.cfg.Hold(id); ok {
			held[id] = release
		}
	}
	for id, release := range held {
		if !running[id] {
			release()
			delete(held, id)
		}
	}
}
