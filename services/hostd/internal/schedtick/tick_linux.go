package schedtick

import (
	"context"
	"os"
	"os/exec"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const period = time.Millisecond

// Needed reports whether the kernel's own clock ticks less often.
func Needed() bool {
	var res unix.Timespec
	return unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res) == nil && res.Nano() > 2*period.Nanoseconds()
}

// Ticker is the child process. It ends with its parent, however that ends.
type Ticker struct {
	cmd *exec.Cmd
	end *os.File
}

// Start starts the child from self, a program that calls Main for Arg. The child also ends
// with ctx. Errors are the system's.
func Start(ctx context.Context, self string) (*Ticker, error) {
	in, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = []string{"millrace", Arg}
	cmd.Stdin = in
	cmd.Env = []string{"GODEBUG=asyncpreemptoff=1"} // waiting threads would be preempted
	if err := cmd.Start(); err != nil {
		end.Close()
		return nil, err
	}
	return &Ticker{cmd, end}, nil
}

// PID returns the child's pid.
func (t *Ticker) PID() int { return t.cmd.Process.Pid }

// Stop ends the child and waits for it.
func (t *Ticker) Stop() {
	t.end.Close()
	t.cmd.Wait() //nolint:errcheck // nothing depends on how it ended
}

// sleep waits for d, or until a signal.
func sleep(d *unix.Timespec) {
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(d)), 0, 0, 0) //nolint:errcheck // a signal ends it
}
