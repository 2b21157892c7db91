package procs

import (
	"context"
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// maxInput is the maximum number of input bytes in one command.
const maxInput = 256 << 10

const (
	sigKill = 9
	sigTerm = 15
	sigMax  = 64
)

// SendInput writes data to the process's stdin or terminal, then closes it if eof is
// set, and returns when the process's host has done so. It returns NotFound if the
// process has ended, Conflict or Precondition if stdin is closed or was never open, and
// Deadline if the process read nothing for Config.InputTimeout. After Deadline or an
// unlisted error it is unknown how much was written.
func (ps *Procs) SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error {
	return ps.sendInput(ctx, p, id, data, eof, newID)
}

// newID returns the id of a command that is not retried.
func newID(int) string { return ulid.Make().String() }

// sendInput sends data in commands that fit into a message; the n-th gets the id that
// idOf returns.
func (ps *Procs) sendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool, idOf func(n int) string) error {
	t, err := ps.target(ctx, p, id)
	if err != nil {
		return err
	}
	if !t.sum.Spec.Stdin && t.sum.Spec.PTY == nil {
		return kind.New(kind.Precondition, "send input", string(id), "stdin is not enabled for this process")
	}
	for i := 0; ; i++ {
		n := min(len(data), maxInput)
		last := n == len(data)
		if _, err := ps.core.Call(ctx, &t.st, t.sum.ID, idOf(i), command.Stdin{Data: data[:n], EOF: eof && last}, ps.core.InputTimeout); err != nil {
			return ps.inputError(t, err)
		}
		if last {
			return nil
		}
		data = data[n:]
	}
}

// inputError turns a timeout into Deadline if the host is alive: such a host takes the input
// at once, and answers when the process has read it.
func (ps *Procs) inputError(t target, err error) error {
	if !kind.Is(err, kind.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if err := ps.core.RequireHost(&t.st); err != nil {
		return err
	}
	return &kind.Error{Op: "send input", ID: string(t.sum.ID), Kind: kind.Deadline, Msg: "the process did not read its input in time", Err: err}
}

// Signal sends a signal to the process group and returns when it has been sent. After
// SIGKILL and SIGTERM the counts already show the process as killed (C-024). It returns
// NotFound if the process has ended.
func (ps *Procs) Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error {
	if sig < 1 || sig > sigMax {
		return kind.Newf(kind.Invalid, "signal", string(id), "no signal %d", sig)
	}
	t, err := ps.target(ctx, p, id)
	if err != nil {
		return err
	}
	if _, err := ps.core.Call(ctx, &t.st, t.sum.ID, newID(0), command.Signal{Signal: sig}, ps.core.CallTimeout); err != nil {
		return err
	}
	if sig != sigKill && sig != sigTerm {
		return nil
	}
	// The host stored the kill before it replied.
	return ps.core.Sync(ctx)
}

// Resize sets the terminal's size; it does nothing for a process without one.
func (ps *Procs) Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error {
	if size.Cols > process.MaxWindow || size.Rows > process.MaxWindow {
		return kind.Newf(kind.Invalid, "resize", string(id), "terminal larger than %d", process.MaxWindow)
	}
	t, err := ps.target(ctx, p, id)
	if err != nil || t.sum.Spec.PTY == nil {
		return err
	}
	_, err = ps.core.Call(ctx, &t.st, t.sum.ID, newID(0), command.Resize{Size: size}, ps.core.CallTimeout)
	return err
}

// target is a process that accepts commands.
type target struct {
	st  sandbox.State
	sum process.Summary
}

// target returns the active process that a command is for. The process of a start that no host has
// claimed yet is waited for.
func (ps *Procs) target(ctx context.Context, p core.Principal, id process.ID) (target, error) {
	st, err := ps.lifecycle.FindSandbox(ctx, p, id.Sandbox())
	if err != nil {
		return target{}, noProcessIf(id, err)
	}
	sum, err := ps.Process(ctx, p, id)
	if kind.Is(err, kind.NotFound) && ps.unclaimed.has(id) {
		ctx, cancel := context.WithTimeout(ctx, ps.core.CallTimeout)
		defer cancel()
		if sum, err = ps.core.View.AwaitProcess(ctx, id); err != nil {
			return target{}, kind.Wrap(kind.Unavailable, "find process", string(id), err)
		}
	}
	if err != nil {
		return target{}, err
	}
	if !sum.Active() || st.Over() {
		return target{}, kind.Newf(kind.NotFound, "find process", string(id), "process with pid %d not found", sum.PID)
	}
	if st.InPause() {
		if st, err = ps.lifecycle.RequireRunning(ctx, p, id.Sandbox()); err != nil {
			return target{}, noProcessIf(id, err)
		}
	}
	return target{st: st, sum: sum}, nil
}
