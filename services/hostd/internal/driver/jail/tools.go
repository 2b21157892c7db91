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

// tools are the paths of programs by name.
type tools map[string]string

// find returns an error for the first missing program, in the order of their names.
func (t tools) find() error {
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if _, err := exec.LookPath(t[name]); err != nil {
			return fmt.Errorf("jails require FreeBSD: %w", err)
		}
	}
	return nil
}

// Error is the error of a program.
type Error struct {
	Args   []string // name and arguments
	Stderr string   // beginning of its output
	Err    error
}

func (e *Error) Error() string {
	return strings.TrimSpace(strings.Join(e.Args, " ") + ": " + e.Err.Error() + ": " + e.Stderr)
}

func (e *Error) Unwrap() error { return e.Err }

// run runs a program and returns its output, without the last newline.
func (t tools) run(ctx context.Context, name string, args ...string) (string, error) {
	var out bytes.Buffer
	err := t.pipe(ctx, nil, &out, name, args...)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// pipe runs a program with the given stdin and stdout.
func (t tools) pipe(ctx context.Context, in io.Reader, out io.Writer, name string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, t[name], args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	cmd.SysProcAttr = endWithHostd()
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		const most = 1 << 10
		text := stderr.String()
		return &Error{Args: append([]string{name}, args...), Stderr: strings.TrimSpace(text[:min(len(text), most)]), Err: err}
	}
	return nil
}

// ask runs a program whose exit status reports whether something exists.
func (t tools) ask(ctx context.Context, name string, args ...string) (bool, error) {
	out, err := t.run(ctx, name, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return false, nil
	}
	return err == nil && out != "", err
}

// path returns the path of a program; one that is not found fails when it is run.
func (t tools) path(name string) string {
	if path, err := exec.LookPath(t[name]); err == nil {
		return path
	}
	return t[name]
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }
