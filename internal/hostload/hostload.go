// Package hostload has the CPUs of this machine used by programs that only count, behind
// all else: whoever measures sees by them what sharing the machine costs at least.
package hostload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// count is a program that counts for as long as who began it is there.
const count = "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null"

// Load is programs that run. It is for one goroutine.
type Load []*exec.Cmd

// Begin begins so many, each for a CPU of its own; they end with ctx, too.
func Begin(ctx context.Context, programs int) (Load, error) {
	var l Load
	for range programs {
		cmd := exec.CommandContext(ctx, "nice", "-n", "19", "sh", "-c", count)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			l.End()
			return nil, fmt.Errorf("a program that counts: %w", err)
		}
		l = append(l, cmd)
		// Linux shares CPUs out between sessions first. Not every kernel does.
		os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte("19"), 0) //nolint:errcheck // as above
	}
	return l, nil
}

// Pause has them stand still.
func (l Load) Pause() error { return l.signal(syscall.SIGSTOP) }

// Resume has them go on.
func (l Load) Resume() error { return l.signal(syscall.SIGCONT) }

func (l Load) signal(sig syscall.Signal) (err error) {
	for _, cmd := range l {
		err = errors.Join(err, cmd.Process.Signal(sig))
	}
	return err
}

// End ends them, and returns when they are gone.
func (l Load) End() {
	for _, cmd := range l {
		cmd.Process.Kill() //nolint:errcheck // it has ended then
		cmd.Wait()         //nolint:errcheck // it was killed
	}
}
