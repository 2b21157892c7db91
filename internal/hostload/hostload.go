// Package hostload has this machine used by programs of its own, behind all else:
// whoever measures sees by them what sharing the machine costs at least.
package hostload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Count is a step of a program that only counts.
const Count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

// Load is programs that run, each with processes of its own. It is for one goroutine.
type Load []*exec.Cmd

// Begin begins so many, each for a CPU of its own, that take a step, a shell's, over and over
// for as long as who began them is there; they end with ctx, too.
func Begin(ctx context.Context, programs int, step string) (Load, error) {
	var l Load
	for range programs {
		cmd := exec.CommandContext(ctx, "nice", "-n", "19", "sh", "-c", "while kill -0 $PPID; do "+step+"; done 2>/dev/null")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Cancel = func() error { return group(cmd, syscall.SIGKILL) }
		if err := cmd.Start(); err != nil {
			l.End()
			return nil, fmt.Errorf("a program beside what is measured: %w", err)
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
		err = errors.Join(err, group(cmd, sig))
	}
	return err
}

// group signals a program and all that it began.
func group(cmd *exec.Cmd, sig syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, sig) }

// End ends them, and returns when they are gone.
func (l Load) End() {
	for _, cmd := range l {
		group(cmd, syscall.SIGKILL) //nolint:errcheck // it has ended then
		cmd.Wait()                  //nolint:errcheck // it was killed
	}
}
