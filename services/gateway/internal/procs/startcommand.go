package procs

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

const (
	// readyTimeout is the maximum time for which CreateSandbox waits for the template's
	// ready command. The build has checked that the command can succeed.
	readyTimeout  = 5 * time.Second
	readyInterval = 100 * time.Millisecond
	startKey      = "millrace.start"
)

// Shell returns the spec of a command from a template or a build: bash runs it, as
// clients do, or sh where bash is missing. It is not counted as a client's command.
func Shell(command string) process.Spec {
	return process.Spec{Cmd: "/bin/sh", Args: []string{"-c", `test -x /bin/bash && exec /bin/bash -l -c "$0"; exec /bin/sh -l -c "$0"`, command}, Helper: true}
}

// RunTemplateCommand runs the start command of a sandbox's template and waits briefly until it is
// ready. A failure does not fail the creation: the record shows it.
func (ps *Procs) RunTemplateCommand(ctx context.Context, p core.Principal, st *sandbox.State) {
	err := ps.RunStartCommand(ctx, p, st.ID, st.Request.Start)
	if err == nil && st.Request.Ready != "" {
		within, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		err = ps.AwaitReady(within, p, st.ID, st.Request.Ready)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		ps.core.Slog.Warn("run start command failed", "sandbox", st.ID, "err", err)
	}
}

// RunStartCommand runs a sandbox's start command, once.
func (ps *Procs) RunStartCommand(ctx context.Context, p core.Principal, id sandbox.ID, command string) error {
	a, err := ps.Start(ctx, p, id, Shell(command), StartOptions{IdempotencyKey: startKey})
	if err == nil {
		a.Reader.Close()
	}
	return err
}

// AwaitReady runs a command until it exits with 0. It returns an error if the command that
// RunStartCommand started fails before, or if ctx ends.
func (ps *Procs) AwaitReady(ctx context.Context, p core.Principal, id sandbox.ID, command string) error {
	for n := 0; ; n++ {
		ok, err := ps.runsOK(ctx, p, id, Shell(command), "millrace.ready."+strconv.Itoa(n))
		if ok || err != nil {
			return err
		}
		if _, sum := ps.lastTry(id, startKey); sum != nil && sum.Exit != nil && (sum.Exit.Code == nil || *sum.Exit.Code != 0) {
			return kind.Newf(kind.Precondition, "start", string(id), "the start command ended with %s", Ending(sum.Exit))
		}
		if !waiting.Sleep(ctx, waiting.Delay(n, readyInterval, readyInterval<<4)) {
			return ctx.Err()
		}
	}
}

// runsOK runs a command and reports whether it exited with 0.
func (ps *Procs) runsOK(ctx context.Context, p core.Principal, id sandbox.ID, spec process.Spec, key string) (bool, error) {
	a, err := ps.Start(ctx, p, id, spec, StartOptions{IdempotencyKey: key})
	if err != nil {
		return false, err
	}
	defer a.Reader.Close()
	for {
		batch, err := a.Reader.Next(ctx, time.Second)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, e := range batch {
			if f, ok := e.Body.(process.Exited); ok {
				return f.Exit.Code != nil && *f.Exit.Code == 0, nil
			}
			if f, ok := e.Body.(process.Finished); ok {
				return f.Exit.Code != nil && *f.Exit.Code == 0, nil
			}
		}
	}
}

// Ending describes how a process ended.
func Ending(x *process.Exit) string {
	switch {
	case x.Message != "":
		return x.Message
	case x.Code != nil && x.Signal == 0:
		return "exit status " + strconv.Itoa(int(*x.Code))
	case x.Signal != 0:
		return "signal " + strconv.Itoa(int(x.Signal))
	}
	return string(x.Cause)
}
