package deictic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	maxOutput    = 64 << 10         // bytes of a command's output that the model gets
	shellTimeout = 10 * time.Minute // longest time of a command
	shellGrace   = 2 * time.Second  // between SIGTERM and SIGKILL, and for output of what stays behind
)

// shell runs commands.
type shell struct {
	dir     string
	environ func() []string
}

// run returns the output of a command and how it ended. The command is a session of its own, which is
// ended with it if ctx ends.
func (s *shell) run(ctx context.Context, command, dir string) (string, error) {
	if strings.TrimSpace(command) == "" {
		return "", errors.New("command is required")
	}
	if dir == "" {
		dir = s.dir
	}
	ctx, cancel := context.WithTimeout(ctx, shellTimeout)
	defer cancel()
	program := "/bin/bash"
	if _, err := os.Stat(program); err != nil {
		program = "/bin/sh"
	}
	var out ends
	cmd := exec.CommandContext(ctx, program, "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, s.environ(), &out, &out, shellGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Sprintf("%s\n[the command was ended after %s]", out.text(), shellTimeout), nil
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return out.text() + "\n[exit code 0]", nil
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return fmt.Sprintf("%s\n[ended by the signal %d]", out.text(), ws.Signal()), nil
		}
		return fmt.Sprintf("%s\n[exit code %d]", out.text(), exit.ExitCode()), nil
	}
	return "", err
}

// ends keeps the beginning and the end of what is written to it.
type ends struct {
	head, tail []byte
	dropped    int
}

func (e *ends) Write(b []byte) (int, error) {
	n := len(b)
	if room := maxOutput/2 - len(e.head); room > 0 {
		m := min(room, len(b))
		e.head, b = append(e.head, b[:m]...), b[m:]
	}
	e.tail = append(e.tail, b...)
	if len(e.tail) > maxOutput {
		cut := len(e.tail) - maxOutput/2
		e.dropped += cut
		e.tail = slices.Delete(e.tail, 0, cut)
	}
	return n, nil
}

func (e *ends) text() string {
	if cut := len(e.tail) - maxOutput/2; cut > 0 {
		e.dropped, e.tail = e.dropped+cut, e.tail[cut:]
	}
	if e.dropped == 0 {
		return text(append(e.head, e.tail...))
	}
	return text(e.head) + fmt.Sprintf("\n[%d bytes were left out]\n", e.dropped) + text(e.tail)
}

// environ returns the environment of commands: that of the agent and the values of the configuration,
// without the keys of models.
func environ(own []string, values map[string]string) []string {
	out := make([]string, 0, len(own)+len(values))
	for _, v := range own {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := values[name]; !ok && !slices.Contains(keyNames[:], name) {
			out = append(out, v)
		}
	}
	for name, value := range values {
		if !slices.Contains(keyNames[:], name) && name != keyTask && name != keyApp {
			out = append(out, name+"="+value)
		}
	}
	return out
}
