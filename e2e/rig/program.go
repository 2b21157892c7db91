package rig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Program is one process of the binary, which may have several lives. Its
// methods belong to the test's goroutine.
type Program struct {
	Name string
	bin  string
	args []string
	env  []string
	log  string // path

	cmd  *exec.Cmd
	done chan struct{} // closed when this life is over
	err  error         // of Wait; after done
}

// start begins a life.
func (p *Program) start() error {
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(p.bin, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = f, f
	// A test run that panics must not leave servers behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := onStarter(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		p.err = cmd.Wait()
		close(done)
	}(p.done)
	return nil
}

// onStarter runs f on the one thread that lives as long as the test run: the
// death of a child's parent is that of the thread that made it.
func onStarter(f func() error) error {
	res := make(chan error, 1)
	starter() <- func() { res <- f() }
	return <-res
}

var starter = sync.OnceValue(func() chan<- func() {
	ch := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range ch {
			f()
		}
	}()
	return ch
})

// PID is that of the current life.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Done is closed when the current life is over.
func (p *Program) Done() <-chan struct{} { return p.done }

// Running reports whether the current life goes on.
func (p *Program) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return p.cmd != nil
	}
}

// Kill9 ends the program as a crash would, and returns when it is gone.
func (p *Program) Kill9() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Stop freezes the program; Cont lets it go on.
func (p *Program) Stop() { p.signal(syscall.SIGSTOP) }

// Cont lets a frozen program go on.
func (p *Program) Cont() { p.signal(syscall.SIGCONT) }

func (p *Program) signal(s syscall.Signal) {
	if p.Running() {
		p.cmd.Process.Signal(s) //nolint:errcheck // it ended meanwhile
	}
}

// termTimeout is how long a program may take to drain.
const (
	termTimeout = 20 * time.Second
	dumpTimeout = 5 * time.Second
)

// Term asks the program to end and returns how it did: nil for exit code 0. One
// that does not end in time is killed, which is an error that tells what it waited for.
func (p *Program) Term() error {
	if !p.Running() {
		return p.err
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)
	t := time.NewTimer(termTimeout)
	defer t.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s after SIGTERM: %w", p.Name, p.err)
		}
		return nil
	case <-t.C:
		p.signal(syscall.SIGQUIT) // it says what its goroutines wait for
		t.Reset(dumpTimeout)
		select {
		case <-p.done:
		case <-t.C:
			p.Kill9()
		}
		return fmt.Errorf("%s did not end within %v of SIGTERM:\n%s", p.Name, termTimeout, p.Log())
	}
}

// Restart begins another life, with the same arguments and files; the one
// before must be over.
func (p *Program) Restart() error {
	if p.Running() {
		return errors.New(p.Name + " still runs")
	}
	return p.start()
}

// Log is what the program said in all of its lives, the last 64 KiB of it.
func (p *Program) Log() string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 64 << 10
	if len(raw) > most {
		raw = raw[len(raw)-most:]
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			raw = raw[i+1:]
		}
	}
	return string(raw)
}
