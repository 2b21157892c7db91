package sidecar

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/filelock"
)

const report = 10 * time.Second

// Tell tells of something, with names and values.
type Tell func(msg string, args ...any)

// Build finds the program, or builds it, which takes as little of the machine as
// can be. One who builds the same at the same time is waited for. tell gets its
// progress, as the methods of a slog.Logger do.
func (p Program) Build(ctx context.Context, tell Tell) (string, error) {
	if path, err := p.Find(); err == nil {
		return path, nil
	}
	to, err := p.cached()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Wait(ctx, filepath.Join(filepath.Dir(to), p.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if executable(to) { // whoever had the lock
		return to, nil
	}
	tmp := to + ".new"
	if err := p.compile(ctx, tmp, tell); err != nil {
		os.Remove(tmp) //nolint:errcheck // there may be none
		return "", fmt.Errorf("build %s: %w", p.Name, err)
	}
	return to, os.Rename(tmp, to)
}

func (p Program) compile(ctx context.Context, to string, tell Tell) error {
	root, err := source()
	if err != nil {
		return err
	}
	start := time.Now()
	tell("a program is built from source, once", "program", p.Name)
	// A service may go before others: a compiler must not.
	cmd := exec.CommandContext(ctx, "nice", "-n", "20", "go", "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, ".")
	cmd.Dir = filepath.Join(root, p.Main)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if p.Module {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	last := follow(out, func(packages int) {
		tell("a program is being built", "program", p.Name, "packages", packages, "seconds", int(time.Since(start).Seconds()))
	})
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %s", err, last)
	}
	tell("a program is built", "program", p.Name, "seconds", int(time.Since(start).Seconds()))
	return nil
}

// follow reads what go says, a line for each package that it compiles or an error,
// tells now and then how many lines there were, and gives the last ones.
func follow(out io.Reader, tell func(lines int)) string {
	var lines atomic.Int64
	done := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		tick := time.NewTicker(report)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell(int(lines.Load()))
			case <-done:
				return
			}
		}
	}()
	defer func() { close(done); <-told }()
	const keep = 8
	var last []string
	for s := bufio.NewScanner(out); s.Scan(); {
		lines.Add(1)
		if last = append(last, s.Text()); len(last) > keep {
			last = last[1:]
		}
	}
	return strings.Join(last, "; ")
}
