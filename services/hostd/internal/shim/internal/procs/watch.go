package procs

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/files"
)

const (
	maxWatches = 128
	// pidsEnd is above every pid that the kernel assigns. The pids of watches follow it.
	pidsEnd = 1 << 22
)

// watch is a process that runs inside the shim. Table.mu guards it.
type watch struct {
	w     *files.Watcher
	out   *os.File
	idle  time.Duration
	timer *time.Timer // of idle
	sig   syscall.Signal
}

// startWatch starts a watch. Each message in its pipe is read separately, so that an event
// of the record holds whole events of the watch.
func (p *proc) startWatch(spec *process.Spec) error {
	if spec.PTY != nil {
		return kind.New(kind.Invalid, "watch", "", "a watch has no terminal")
	}
	t := p.t
	req, err := file.ParseWatch(spec.User, spec.Args)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.watchCount++
	n := t.watchCount
	t.watchTotal++
	pid := pidsEnd + t.watchTotal
	t.mu.Unlock()
	defer func() {
		if err != nil {
			t.unwatch()
		}
	}()
	if n > maxWatches {
		err = kind.Newf(kind.Exhausted, "watch", "", "more than %d watches", maxWatches)
		return err
	}
	w, err := t.cfg.Files.Watch(&req)
	if err != nil {
		return err
	}
	e, out, err := watchEnds()
	if err != nil {
		w.Stop()
		return err
	}
	wt := &watch{w: w, out: out, idle: req.Idle}
	t.mu.Lock()
	p.watch = wt
	if wt.idle > 0 {
		wt.timer = time.AfterFunc(wt.idle, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			wt.signal(syscall.SIGTERM)
		})
	}
	t.mu.Unlock()
	p.started(pid, spec, e, func(func(syscall.WaitStatus)) (syscall.WaitStatus, bool) { return 0, false })
	go p.runWatch()
	return nil
}

func watchEnds() (*stdioEnds, *os.File, error) {
	syscall.ForkLock.RLock() // no child inherits them
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, kind.Newf(kind.Exhausted, "watch", "", "cannot watch: %s", err)
	}
	unix.SetNonblock(fds[1], true) //nolint:errcheck // cannot fail on a socket
	e := &stdioEnds{}
	out := os.NewFile(uintptr(fds[1]), "watch")
	if err := e.addOutput(process.Stdout, e.parentFile(fds[0], "watch"), fds[0]); err != nil {
		e.closeParent()
		out.Close()
		return nil, nil, err
	}
	return e, out, nil
}

// runWatch writes events until the watch is stopped, and then ends the process.
func (p *proc) runWatch() {
	t, wt := p.t, p.watch
	t.mu.Lock()
	if t.ending || p.finished {
		wt.signal(syscall.SIGKILL)
	}
	t.mu.Unlock()
	wt.w.Run(wt.out) //nolint:errcheck // the signal determines how it ends
	wt.w.Stop()
	wt.out.Close()
	t.mu.Lock()
	status := syscall.WaitStatus(1 << 8) // it ended by itself
	if wt.sig != 0 {
		status = syscall.WaitStatus(wt.sig)
	}
	if wt.timer != nil {
		wt.timer.Stop()
	}
	t.mu.Unlock()
	t.unwatch()
	p.childEnded(status)
}

func (t *Table) unwatch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchCount--
}

// signal ends the watch; SIGCONT instead restarts its idle timer. Table.mu is held.
func (wt *watch) signal(sig syscall.Signal) {
	if sig == syscall.SIGCONT {
		if wt.timer != nil && wt.sig == 0 {
			wt.timer.Reset(wt.idle)
		}
		return
	}
	if wt.sig == 0 {
		wt.sig = sig
		wt.w.Stop()
		wt.out.Close()
	}
}
