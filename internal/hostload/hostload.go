// Package hostload runs programs on this machine at the lowest priority, as load beside a
// measurement: they show the minimum cost of sharing the machine.
package hostload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Count is a step that only counts.
const Count = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"

// Load is a set of running programs, each in a process group of its own. It is not safe
// for concurrent use.
type Load []*exec.Cmd

// Begin starts the given number of programs, one per CPU to load. Each repeats step, a
// shell command, until this process exits or ctx ends.
func Begin(ctx context.Context, programs int, step string) (Load, error) {
	var l Load
	for range programs {
		cmd := exec.CommandContext(ctx, "nice", "-n", "19", "sh", "-c", "while kill -0 $PPID; do "+step+"; done 2>/dev/null")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Cancel = func() error { return group(cmd, syscall.SIGKILL) }
		if err := cmd.Start(); err != nil {
			l.End()
			return nil, fmt.Errorf("start load: %w", err)
		}
		l = append(l, cmd)
		// Linux divides the CPUs between sessions first, if the kernel has autogroups.
		os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte("19"), 0) //nolint:errcheck // as above
	}
	return l, nil
}

// Pause stops the programs by SIGSTOP.
func (l Load) Pause() error { return l.signal(syscall.SIGSTOP) }

// Resume continues the programs by SIGCONT.
func (l Load) Resume() error { return l.signal(syscall.SIGCONT) }

func (l Load) signal(sig syscall.Signal) (err error) {
	for _, cmd := range l {
		err = errors.Join(err, group(cmd, sig))
	}
	return err
}

// group signals a program and its children.
func group(cmd *exec.Cmd, sig syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, sig) }

// End kills the programs and waits until they have exited.
func (l Load) End() {
	for _, cmd := range l {
		group(cmd, syscall.SIGKILL) //nolint:errcheck // it may have ended
		cmd.Wait()                  //nolint:errcheck // it was killed
	}
}
