package helperbin

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/flock"
)

const reportInterval = 10 * time.Second

// LogFunc logs a message with names and values.
type LogFunc func(msg string, args ...any)

// Build finds the program or builds it, at low priority. A concurrent build of the same
// program is waited for. log gets the progress, like the methods of a slog.Logger.
func (p Program) Build(ctx context.Context, log LogFunc) (string, error) {
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
	unlock, err := flock.Lock(ctx, filepath.Join(filepath.Dir(to), p.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if executable(to) { // built by the previous holder of the lock
		return to, nil
	}
	tmp := to + ".new"
	if err := p.complete(ctx, tmp, log); err != nil {
		os.Remove(tmp)
		return "", fmt.Errorf("build %s: %w", p.Name, err)
	}
	return to, os.Rename(tmp, to)
}

// complete builds the program with what it embeds.
func (p Program) complete(ctx context.Context, to string, log LogFunc) error {
	if p.Embeds == nil {
		return p.compile(ctx, to, log)
	}
	root, err := source()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".embed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	part, packed, overlay := filepath.Join(dir, "part"), filepath.Join(dir, "part.gz"), filepath.Join(dir, "overlay.json")
	if err := (Program{Name: filepath.Base(p.Embeds.Main), Main: p.Embeds.Main}).compile(ctx, part, log); err != nil {
		return err
	}
	if err := compress(packed, part); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, p.Embeds.File): packed}})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		return err
	}
	return p.compile(ctx, to, log, "-overlay", overlay)
}

// compress writes a file compressed to another one.
func compress(to, from string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(w)
	_, err = io.Copy(z, r)
	return errors.Join(err, z.Close(), w.Close())
}

func (p Program) compile(ctx context.Context, to string, log LogFunc, flags ...string) error {
	root, err := source()
	if err != nil {
		return err
	}
	start := time.Now()
	log("building program from source, once", "program", p.Name)
	// Services may have a raised priority; a compiler must not.
	args := slices.Concat([]string{"-n", "20", "go", "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, flags, []string{"-o", to, "."})
	cmd := exec.CommandContext(ctx, "nice", args...)
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
		log("building program", "program", p.Name, "packages", packages, "seconds", int(time.Since(start).Seconds()))
	})
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %s", err, last)
	}
	log("built program", "program", p.Name, "seconds", int(time.Since(start).Seconds()))
	return nil
}

// follow reads the output of go build -v, a line for each compiled package or error,
// reports the number of lines periodically, and returns the last ones.
func follow(out io.Reader, report func(lines int)) string {
	var lines atomic.Int64
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				report(int(lines.Load()))
			case <-done:
				return
			}
		}
	}()
	defer func() { close(done); <-stopped }()
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
