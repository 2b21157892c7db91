package shim

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// spawn runs spec as the given user and records Started. Its error is the reason for a failure.
func (p *proc) spawn(spec *process.Spec, acct *account) error {
	if p.isWatch {
		return p.startWatch(spec)
	}
	s := p.s
	dir, err := s.cwd(acct, spec.Cwd)
	if err != nil {
		return err
	}
	cred, err := s.credential(acct)
	if err != nil {
		return err
	}
	ends, err := openEnds(spec, acct)
	if err != nil {
		return err
	}
	env := s.environ(acct, spec.Env)
	attr := &syscall.ProcAttr{
		Dir: dir, Env: envList(env), Files: ends.child[:],
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: cred},
	}
	if !s.pid1 {
		setDeathSignal(attr.Sys)
	}
	attr.Sys.Setctty = spec.PTY != nil
	p.kills = s.readOOM()
	c, err := s.fork(spec, env["PATH"], attr)
	ends.closeChild()
	if err != nil {
		ends.closeParent()
		return err
	}
	p.started(c, spec, ends)
	return nil
}

// fork runs the program. If that fails, it runs a shell instead, which reports the problem
// on stderr and exits with 127 or 126, as users expect.
func (s *Shim) fork(spec *process.Spec, path string, attr *syscall.ProcAttr) (*child, error) {
	cmd := shell(spec.Cmd)
	argv := append([]string{cmd}, spec.Args...)
	c, err := s.execute(program(cmd, path, attr.Dir), argv, attr)
	tooLarge := oversize(err, argv, attr.Env)
	switch {
	case err == nil:
		return c, nil
	case tooLarge != nil:
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, kind.Newf(kind.Unavailable, "start", "", "the program could not be executed within %s", s.cfg.Execute)
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM):
		return nil, kind.Newf(kind.Exhausted, "start", "", "cannot start a process: %s", err)
	}
	argv = append([]string{"sh", "-c", `exec "$0" "$@"`}, argv...)
	if c, shErr := s.execute("/bin/sh", argv, attr); shErr == nil {
		return c, nil
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

// resolve makes a path absolute: relative paths and ~ start at the account's home.
func (a *account) resolve(path string) (string, error) {
	switch {
	case path == "" || path == "~":
		return a.home, nil
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(a.home, path[2:]), nil
	case strings.HasPrefix(path, "~"):
		return "", kind.Newf(kind.Invalid, "resolve", "", "path '%s': only one's own home can be named by ~", path)
	case !filepath.IsAbs(path):
		return filepath.Join(a.home, path), nil
	}
	return filepath.Clean(path), nil
}

// cwd returns the working directory of a process.
func (s *Shim) cwd(a *account, path string) (string, error) {
	if path == "" && s.cfg.Workdir != "" {
		if fi, err := os.Stat(s.cfg.Workdir); err == nil && fi.IsDir() {
			return s.cfg.Workdir, nil
		}
	}
	return a.cwd(path)
}

func (a *account) cwd(path string) (string, error) {
	dir, err := a.resolve(path)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(dir)
	switch {
	case err == nil && fi.IsDir():
		return dir, nil
	case path == "":
		return "/", nil // an account may have no home
	case err == nil:
		return "", kind.Newf(kind.Invalid, "start", "", "cwd '%s' is not a directory", path)
	}
	return "", kind.Newf(kind.Invalid, "start", "", "cwd '%s' does not exist", path)
}

func envList(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// started records Started and begins to read the output.
func (p *proc) started(c *child, spec *process.Spec, e *stdioEnds) {
	s := p.s
	s.mu.Lock()
	pid := c.pid
	p.startResolved()
	p.pid = pid
	p.in, p.tty = e.in, e.tty
	p.record(process.Started{PID: uint32(pid)})
	for _, o := range e.out {
		st := &stream{p: p, id: o.id, f: o.f, rc: o.rc, fd: o.fd, coalescer: coalescer{wait: s.cfg.Coalesce}}
		p.streams = append(p.streams, st)
	}
	p.open, p.undrained = len(p.streams), len(p.streams)
	if spec.Timeout > 0 {
		p.startTimeout(spec.Timeout)
	}
	early := c.ended
	if early {
		p.markReaped(c.status)
	} else {
		delete(s.unclaimed, pid)
		s.pids[pid] = p
	}
	p.runPending()
	gone := p.finished // abandoned while it was being spawned
	if gone {
		p.closeInput()
	}
	ending := s.ending
	s.mu.Unlock()
	for _, st := range p.streams {
		go st.run()
	}
	if (gone || ending) && !early {
		syscall.Kill(-pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
	}
	if early {
		p.drain()
	}
}
