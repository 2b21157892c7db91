package backend

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// sandboxSession is one session in one sandbox.
type sandboxSession struct {
	b       *Backend
	ops     Operations
	p       core.Principal
	sbx     sandbox.ID
	session string
	fresh   bool // all of the session's processes were started here

	mu      sync.Mutex
	started map[string]bool // names of the processes that were started here
	dirs    map[string]bool // working directories that exist
}

// The size of a terminal: the protocol has no way to change it.
const (
	columns = 80
	rows    = 24
)

// Start implements [session.Processes].
func (s *sandboxSession) Start(ctx context.Context, name string, cmd session.Command) (session.Process, session.Source, error) {
	if err := s.checkName(ctx, name); err != nil {
		return session.Process{}, nil, err
	}
	if err := s.makeDir(ctx, cmd.Cwd); err != nil {
		return session.Process{}, nil, err
	}
	tag := s.prefix() + name
	spec := process.Spec{
		Cmd: cmd.Argv[0], Args: cmd.Argv[1:], Env: cmd.Env, Cwd: cmd.Cwd, Stdin: cmd.Stdin, Tag: &tag, Helper: true,
		Exact: true, Arg0: cmd.Arg0, Confine: cmd.Confinement, UntilEOF: true,
	}
	if cmd.TTY {
		spec.PTY = &process.Size{Cols: columns, Rows: rows}
	}
	id, src, err := s.ops.Start(ctx, s.p, s.sbx, spec, procs.StartOptions{})
	if err != nil {
		return session.Process{}, nil, err
	}
	s.mu.Lock()
	s.started[name] = true
	s.mu.Unlock()
	return session.Process{ID: id, Name: name, TTY: cmd.TTY, Stdin: cmd.Stdin}, src, nil
}

// checkName returns Conflict if a name is in use.
func (s *sandboxSession) checkName(ctx context.Context, name string) error {
	s.mu.Lock()
	unused := s.fresh && !s.started[name]
	s.mu.Unlock()
	if unused {
		return nil
	}
	sum, err := s.last(ctx, name)
	switch {
	case kind.Is(err, kind.NotFound):
		return nil
	case err != nil:
		return err
	case sum.Active() || time.Since(sum.Ended) < retained:
		return kind.New(kind.Conflict, "start", name, "the process already exists")
	}
	return nil
}

// last returns the newest process of a name that ran or may still run.
func (s *sandboxSession) last(ctx context.Context, name string) (process.Summary, error) {
	tag := s.prefix() + name
	all, err := s.ops.Processes(ctx, s.p, s.sbx, func(sum *process.Summary) bool {
		return sum.Spec.Tag != nil && *sum.Spec.Tag == tag && !neverRan(sum)
	})
	if err != nil {
		return process.Summary{}, err
	}
	if len(all) == 0 {
		return process.Summary{}, kind.New(kind.NotFound, "find process", name, "process not found")
	}
	return all[len(all)-1], nil
}

// Find implements [session.Processes].
func (s *sandboxSession) Find(ctx context.Context, name string) (session.Process, error) {
	sum, err := s.last(ctx, name)
	if err != nil {
		return session.Process{}, err
	}
	return s.processOf(&sum), nil
}

// Running implements [session.Processes].
func (s *sandboxSession) Running(ctx context.Context) ([]session.Process, error) {
	prefix := s.prefix()
	all, err := s.ops.ActiveProcesses(ctx, s.p, s.sbx, func(sum *process.Summary) bool {
		return sum.Spec.Tag != nil && strings.HasPrefix(*sum.Spec.Tag, prefix)
	})
	out := make([]session.Process, 0, len(all))
	for i := range all {
		out = append(out, s.processOf(&all[i]))
	}
	return out, err
}

// makeDir makes a working directory that does not exist: clients send their own, whether or not
// the sandbox has it. A failure is left to the start.
func (s *sandboxSession) makeDir(ctx context.Context, dir string) error {
	s.mu.Lock()
	known := s.dirs[dir]
	s.mu.Unlock()
	if known {
		return nil
	}
	f, err := s.ops.OpenFiles(ctx, s.p, s.sbx, &file.Request{Op: file.OpMakeDir, Path: dir, Force: true})
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Only(); err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirs == nil || len(s.dirs) >= maxDirs {
		s.dirs = make(map[string]bool)
	}
	s.dirs[dir] = true
	return nil
}

// maxDirs is how many working directories are remembered.
const maxDirs = 64

// Tail implements [session.Records].
func (s *sandboxSession) Tail(ctx context.Context, id process.ID) (session.Tail, error) {
	t, err := s.ops.Tail(ctx, s.p, id)
	if kind.Is(err, kind.NotFound) { // the caller has found the process
		return session.Tail{}, nil
	}
	return session.Tail{Last: t.Last, Exited: t.Exited, Finished: t.Finished}, err
}

// Read implements [session.Records].
func (s *sandboxSession) Read(ctx context.Context, id process.ID, after process.Seq) (session.Source, error) {
	read := func(ctx context.Context, after process.Seq) (stream.Source, error) {
		return s.ops.Read(ctx, s.p, id, after)
	}
	src, err := read(ctx, after)
	if err != nil {
		return nil, err
	}
	return &retainedSource{Source: src, read: read}, nil
}

// retainedSource reads a record across what retention removed, which it reports as a gap.
type retainedSource struct {
	stream.Source
	read func(ctx context.Context, after process.Seq) (stream.Source, error)
}

// Next implements [session.Source].
func (r *retainedSource) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := r.Source.Next(ctx, idle)
	after := r.After()
	first, ok := record.FirstSeq(err)
	if !ok || first <= after+1 || len(batch) > 0 {
		return batch, err
	}
	src, failed := r.read(ctx, first-1)
	if failed != nil {
		return nil, failed
	}
	r.Source.Close()
	r.Source = src
	return []process.Event{{Seq: first - 1, Body: process.Gap{From: after + 1, To: first - 1, Reason: "retention"}}}, nil
}

// Write implements [session.Controls].
func (s *sandboxSession) Write(ctx context.Context, id process.ID, key string, data []byte) error {
	if key == "" {
		return s.ops.SendInput(ctx, s.p, id, data, false)
	}
	err := s.ops.SendInputOnce(ctx, s.p, id, key, data, false)
	if kind.Is(err, kind.Conflict) {
		return nil // the key was used with other input, which counts
	}
	return err
}

// Signal implements [session.Controls].
func (s *sandboxSession) Signal(ctx context.Context, id process.ID, sig int32) error {
	return s.ops.Signal(ctx, s.p, id, sig)
}
