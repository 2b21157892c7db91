//go:build linux

package drivertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/stdio"
)

// testReopenStdio checks that a program can open its standard files by their paths, as any
// user.
func (s *suite) testReopenStdio(t *testing.T) {
	b := s.create(t, nil)
	eachUser(t, func(t *testing.T, uid int) {
		for _, tt := range []struct{ script, stdin, out, err string }{
			{"echo x > /dev/stderr", "", "", "x\n"},
			{"echo x >> /dev/stdout", "", "x\n", ""},
			{"echo x | tee /dev/stderr", "", "x\n", "x\n"},
			{"echo x > /proc/self/fd/2; echo y > /proc/self/fd/1", "", "y\n", "x\n"},
			{"echo x > /dev/fd/2", "", "", "x\n"},
			{"cat /dev/stdin", "x\n", "x\n", ""},
			{"sh -c 'cat /proc/self/fd/0; cat /dev/stdin'", "x\n", "x\n", ""},
			{"exec 3> /dev/stderr; echo x >&3; sh -c 'echo y > /dev/fd/3'", "", "", "x\ny\n"},
		} {
			r := send(t, b.Instance, request{Call: "stdio", Args: []string{"sh", "-c", tt.script}, UID: uid, Stdin: tt.stdin})
			if r.Out != tt.out || r.Err != tt.err || r.Code != 0 {
				t.Errorf("%s: stdout %q, stderr %q, code %d; want %q, %q, 0", tt.script, r.Out, r.Err, r.Code, tt.out, tt.err)
			}
		}
		reopensTerminal(t, b, uid)
	})
}

func reopensTerminal(t *testing.T, b *instance, uid int) {
	t.Helper()
	const script = `echo a > /dev/stdout; echo b > /dev/stderr; echo c > /dev/tty; echo d > "$(tty)"; echo e > /proc/self/fd/0
read line < /dev/stdin; echo "$line"; [ "$(stat -c %u "$(tty)")" = "$(id -u)" ] || stat "$(tty)"`
	r := send(t, b.Instance, request{Call: "terminal", Args: []string{"sh", "-c", script}, UID: uid, Stdin: "f\n"})
	// The echo of the input may come at any point.
	got := strings.Replace(strings.ReplaceAll(r.Out, "\r\n", "\n"), "f\n", "", 1)
	if got != "a\nb\nc\nd\ne\nf\n" || r.Code != 0 {
		t.Errorf("at a terminal: %q, code %d", got, r.Code)
	}
}

// reopensAsOthers checks other users that the sandbox's user can switch to.
func reopensAsOthers(t *testing.T, b *instance) {
	t.Helper()
	users := []string{"sudo"}
	// Only the owner and root can open gVisor's pipes.
	if os.Geteuid() == 0 && !b.own {
		users = append(users, "sudo -u www-data")
		if b.sh(t, "command -v su; :") != "" {
			users = append(users, "sudo su -s /bin/sh www-data --")
		}
	}
	for _, become := range users {
		script := become + " sh -c 'cat /dev/stdin; echo y > /dev/stderr; echo z > /proc/self/fd/1'"
		if strings.Contains(become, " su ") {
			script = become + " -c 'cat /dev/stdin; echo y > /dev/stderr; echo z > /proc/self/fd/1'"
		}
		r := send(t, b.Instance, request{Call: "stdio", Args: []string{"sh", "-c", script}, UID: 1000, Stdin: "x\n"})
		if r.Out != "x\nz\n" || r.Err != "y\n" || r.Code != 0 {
			t.Errorf("%s: stdout %q, stderr %q, code %d", script, r.Out, r.Err, r.Code)
		}
	}
}

// runWithStdio runs a command with the standard files that the shim provides.
func runWithStdio(req request) (response, error) {
	in, stdin, err := stdio.Input(effectiveUID(req.UID))
	if err != nil {
		return response{}, err
	}
	out, stdout, err := stdio.Output(effectiveUID(req.UID))
	if err != nil {
		return response{}, err
	}
	errs, stderr, err := stdio.Output(effectiveUID(req.UID))
	if err != nil {
		return response{}, err
	}
	cmd := userCommand(req)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = newFile(stdin), newFile(stdout), newFile(stderr)
	var resp response
	err = runWithInput(cmd, req.Stdin, newFile(in), func(wait *sync.WaitGroup) {
		wait.Go(func() { resp.Out = readAll(newFile(out)) })
		wait.Go(func() { resp.Err = readAll(newFile(errs)) })
	})
	resp.Code = cmd.ProcessState.ExitCode()
	return resp, err
}

// runAtTerminal runs a command at a terminal that the shim provides.
func runAtTerminal(req request) (response, error) {
	ours, program, err := stdio.Terminal(effectiveUID(req.UID))
	if err != nil {
		return response{}, err
	}
	// It ends when the last descriptor of it is closed.
	keyboard, err := unix.FcntlInt(uintptr(ours), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return response{}, err
	}
	cmd := userCommand(req)
	cmd.SysProcAttr.Setctty = true
	tty := newFile(program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	var resp response
	err = runWithInput(cmd, req.Stdin, newFile(keyboard), func(wait *sync.WaitGroup) {
		wait.Go(func() { resp.Out = readAll(newFile(ours)) })
	})
	resp.Code = cmd.ProcessState.ExitCode()
	return resp, err
}

// runWithInput runs a command until it has ended and all its output is read.
func runWithInput(cmd *exec.Cmd, text string, in *os.File, read func(*sync.WaitGroup)) error {
	err := cmd.Start()
	for _, f := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f.(*os.File).Close()
	}
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	read(&wait)
	_, err = io.WriteString(in, text)
	in.Close()
	wait.Wait()
	cmd.Wait()
	return err
}

func userCommand(req request) *exec.Cmd {
	cmd := exec.Command(req.Args[0], req.Args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if len(req.Env) > 0 {
		cmd.Env = append(os.Environ(), req.Env...)
	}
	if req.UID >= 0 && req.UID != os.Geteuid() {
		id := uint32(req.UID)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	return cmd
}

func effectiveUID(uid int) int {
	if uid < 0 {
		return os.Geteuid()
	}
	return uid
}

func newFile(fd int) *os.File { return os.NewFile(uintptr(fd), fmt.Sprint("descriptor ", fd)) }

// readAll reads to the end; the end of a terminal is an error.
func readAll(f *os.File) string {
	defer f.Close()
	var b bytes.Buffer
	io.Copy(&b, f)
	return b.String()
}
