package procs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/confine"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// spawn runs spec as the given user and records Started. Its error is the reason for a failure.
func (p *proc) spawn(spec *process.Spec, acct *users.Account) error {
	if p.isWatch {
		return p.startWatch(spec)
	}
	t := p.t
	dir, err := t.cfg.Users.Dir(acct, spec.Cwd)
	if err != nil {
		return err
	}
	cred, err := t.cfg.Users.Credential(acct)
	if err != nil {
		return err
	}
	ends, err := openEnds(spec, acct)
	if err != nil {
		return err
	}
	env := t.environ(acct, spec.Env)
	path := env["PATH"]
	if spec.Exact {
		env = exactEnviron(spec.Env)
	}
	attr := &syscall.ProcAttr{
		Dir: dir, Env: envList(env), Files: ends.child[:],
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: cred},
	}
	if !t.cfg.PID1 {
		children.SetDeathSignal(attr.Sys)
	}
	attr.Sys.Setctty = spec.PTY != nil
	p.kills = t.cfg.OOM.Kills()
	c, err := t.confined(spec, path, attr)
	ends.closeChild()
	if err != nil {
		ends.closeParent()
		return err
	}
	p.started(c.PID, spec, ends, func(report func(syscall.WaitStatus)) (syscall.WaitStatus, bool) {
		p.child = c
		return c.Claim(report)
	})
	return nil
}

// confined is fork with the restrictions that spec requests.
func (t *Table) confined(spec *process.Spec, path string, attr *syscall.ProcAttr) (*children.Child, error) {
	if spec.Confine == nil {
		return t.fork(spec, path, attr, nil)
	}
	restrict, err := confine.New(spec.Confine)
	if err != nil {
		return nil, err
	}
	defer restrict.Close()
	return t.fork(spec, path, attr, restrict)
}

// fork runs the program. If that fails, it runs a shell instead, which reports the problem
// on stderr and exits with 127 or 126, as users expect, unless the start is exact.
func (t *Table) fork(spec *process.Spec, path string, attr *syscall.ProcAttr, restrict *spawn.Restrictions) (*children.Child, error) {
	cmd := spec.Cmd
	if !spec.Exact {
		cmd = shell(cmd)
	}
	argv := append([]string{cmd}, spec.Args...)
	if spec.Arg0 != nil {
		argv[0] = *spec.Arg0
	}
	c, err := t.cfg.Children.Start(program(cmd, path, attr.Dir), argv, attr, restrict)
	tooLarge := oversize(err, argv, attr.Env)
	switch {
	case err == nil:
		return c, nil
	case tooLarge != nil:
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, kind.Newf(kind.Unavailable, "start", "", "the program could not be executed within %s", t.cfg.Children.Execute())
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM):
		return nil, kind.Newf(kind.Exhausted, "start", "", "cannot start a process: %s", err)
	}
	if !spec.Exact {
		argv = append([]string{"sh", "-c", `exec "$0" "$@"`, cmd}, spec.Args...)
		if c, shErr := t.cfg.Children.Start("/bin/sh", argv, attr, restrict); shErr == nil {
			return c, nil
		}
	}
	return nil, kind.Newf(kind.Invalid, "start", "", "cannot run %q: %s", spec.Cmd, err)
}

// shell returns the shell for a command line. E2B clients always request bash; small images
// have only a plain shell.
func shell(cmd string) string {
	const wanted, plain = "/bin/bash", "/bin/sh"
	if cmd != wanted {
		return cmd
	}
	if _, err := os.Stat(wanted); err == nil {
		return wanted
	}
	return plain
}

// program looks a command up as a shell does. For a command that does not exist it returns
// a path that fails to execute with the right error.
func program(cmd, path, dir string) string {
	if strings.Contains(cmd, "/") {
		return cmd
	}
	for d := range strings.SplitSeq(path, ":") {
		file := filepath.Join(d, cmd)
		at := file
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		if fi, err := os.Stat(at); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return at
		}
	}
	return "/nonexistent/" + cmd
}

func envList(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// claim is Child.Claim; it is called with Table.mu held.
type claim func(report func(syscall.WaitStatus)) (status syscall.WaitStatus, ended bool)

// started records Started and begins to read the output.
func (p *proc) started(pid int, spec *process.Spec, e *stdioEnds, c claim) {
	t := p.t
	t.mu.Lock()
	p.startResolved()
	p.pid = pid
	p.in, p.tty = e.in, e.tty
	p.rec.Append(process.Started{PID: uint32(pid)})
	for _, end := range e.out {
		p.reading.streams = append(p.reading.streams, p.rec.NewStream(end, streams{p}))
	}
	p.reading.open, p.reading.undrained = len(e.out), len(e.out)
	if spec.Timeout > 0 {
		p.startTimeout(spec.Timeout)
	}
	status, early := c(p.childEnded)
	if early {
		p.markReaped(status)
	}
	p.runPending()
	gone := p.finished // abandoned while it was being spawned
	if gone {
		p.closeInput()
	}
	ending := t.ending
	t.mu.Unlock()
	for _, st := range p.reading.streams {
		go st.Run()
	}
	if (gone || ending) && !early && p.child != nil {
		p.child.Signal(syscall.SIGKILL, children.NoTerminal) //nolint:errcheck // it may have ended
	}
	if early {
		p.drain()
	}
}
