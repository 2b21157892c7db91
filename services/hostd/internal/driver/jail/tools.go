package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// tools are the programs by name.
type tools map[string]string

// find fails for the first program, in the order of their names, that is not there.
func (t tools) find() error {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if _, err := exec.LookPath(t[name]); err != nil {
			return fmt.Errorf("jails are FreeBSD's own: %w", err)
		}
	}
	return nil
}

// Error is a program that failed.
type Error struct {
	Args   []string // its name and arguments
	Stderr string   // the beginning of what it said
	Err    error
}

func (e *Error) Error() string {
	return strings.TrimSpace(strings.Join(e.Args, " ") + ": " + e.Err.Error() + ": " + e.Stderr)
}

func (e *Error) Unwrap() error { return e.Err }

// run runs a program and returns what it said, without the last newline.
func (t tools) run(ctx context.Context, name string, args ...string) (string, error) {
	var out bytes.Buffer
	err := t.pipe(ctx, nil, &out, name, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// pipe runs a program with a stdin and stdout.
func (t tools) pipe(ctx context.Context, in io.Reader, out io.Writer, name string, args ...string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, t[name], args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	cmd.SysProcAttr = dieWithUs()
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		const most = 1 << 10
		text := said.String()
		return &Error{Args: append([]string{name}, args...), Stderr: strings.TrimSpace(text[:min(len(text), most)]), Err: err}
	}
	return nil
}

// ask runs a program that tells by its status whether there is something.
func (t tools) ask(ctx context.Context, name string, args ...string) (bool, error) {
	out, err := t.run(ctx, name, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return false, nil
	}
	return err == nil && out != "", err
}

// path is where a program is; what is not found fails when it is run.
func (t tools) path(name string) string {
	if path, err := exec.LookPath(t[name]); err == nil {
		return path
	}
	return t[name]
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }
