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
	maxArgument  = 128<<10 - 1      // bytes of an argument or a variable, which the kernel accepts below
	shellGrace   = 2 * time.Second  // between SIGTERM and SIGKILL, and for output of what stays behind
)

// shell runs commands.
type shell struct {
	dir     string
	environ func() (env, tooLarge []string)
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
	if len(command) >= maxArgument {
		return "", fmt.Errorf("the command has %d bytes, and the kernel accepts less than %d: write a script with write_file and run that", len(command), maxArgument)
	}
	env, tooLarge := s.environ()
	ctx, cancel := context.WithTimeout(ctx, shellTimeout)
	defer cancel()
	program := "/bin/bash"
	if _, err := os.Stat(program); err != nil {
		program = "/bin/sh"
	}
	var out ends
	cmd := exec.CommandContext(ctx, program, "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, env, &out, &out, shellGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	var note string
	if len(tooLarge) > 0 {
		note = fmt.Sprintf("\n[variables that are too large for a command, and are in the configuration only: %s]", strings.Join(tooLarge, ", "))
	}
	text, err := s.result(ctx, &out, err)
	return text + note, err
}

// result describes how a command ended.
func (s *shell) result(ctx context.Context, out *ends, err error) (string, error) {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, syscall.E2BIG):
		return "", errors.New("the command and its variables together are larger than the kernel accepts")
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
// without the keys of models. tooLarge are the names of values that the kernel does not accept as variables.
func environ(own []string, values map[string]string) (out, tooLarge []string) {
	out = make([]string, 0, len(own)+len(values))
	for _, v := range own {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := values[name]; !ok && !slices.Contains(keyNames[:], name) {
			out = append(out, v)
		}
	}
	for name, value := range values {
		switch {
		case slices.Contains(keyNames[:], name) || name == keyTask || name == keyApp:
		case len(name)+1+len(value) >= maxArgument:
			tooLarge = append(tooLarge, name)
		default:
			out = append(out, name+"="+value)
		}
	}
	slices.Sort(tooLarge)
	return out, tooLarge
}
