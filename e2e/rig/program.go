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

// Program is a process of the binary that can be restarted. Its methods are for the test's
// goroutine only.
type Program struct {
	Name string
	bin  string
	args []string
	env  []string
	log  string // path

	cmd  *exec.Cmd
	done chan struct{} // closed when the current run has ended
	err  error         // result of Wait; valid after done
}

// start starts the program.
func (p *Program) start() error {
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.Command(p.bin, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = f, f
	// A test run that panics must not leave servers running.
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

// onStarter runs f on a thread that exists until the end of the test run: for Pdeathsig the
// parent of a child is the thread that started it.
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

// PID returns the process id of the current run.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the current run has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Running reports whether the program is running.
func (p *Program) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return p.cmd != nil
	}
}

// Kill9 ends the program as a crash would, and waits until it has ended.
func (p *Program) Kill9() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// Stop stops the program by SIGSTOP; Cont continues it.
func (p *Program) Stop() { p.signal(syscall.SIGSTOP) }

// Cont continues a stopped program.
func (p *Program) Cont() { p.signal(syscall.SIGCONT) }

func (p *Program) signal(s syscall.Signal) {
	if p.Running() {
		p.cmd.Process.Signal(s)
	}
}

// termTimeout is the time for a program to drain.
const (
	termTimeout = 20 * time.Second
	dumpTimeout = 5 * time.Second
)

// Term sends SIGTERM and returns nil if the program exits with 0. A program that does not
// end in time is killed, and the error has its stacks.
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
		p.signal(syscall.SIGQUIT) // it prints its goroutines
		t.Reset(dumpTimeout)
		select {
		case <-p.done:
		case <-t.C:
			p.Kill9()
		}
		return fmt.Errorf("%s did not end within %v of SIGTERM:\n%s", p.Name, termTimeout, p.Log())
	}
}

// Restart starts the program again with the same arguments and files, after its previous
// run has ended.
func (p *Program) Restart() error {
	if p.Running() {
		return errors.New(p.Name + " still runs")
	}
	return p.start()
}

// Log returns the last 64 KiB of the program's output over all its runs.
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
