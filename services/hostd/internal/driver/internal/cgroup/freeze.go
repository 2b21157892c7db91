package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoFreezer reports that a group has nothing that could stop its processes.
var ErrNoFreezer = errors.New("the group has no freezer")

// freezeFile is the file that stops and starts a group's processes, and the values to
// write and read.
type freezeFile struct {
	file, stop, start string // file and values to write
	state, stopped    string // file with the state, and the line in it when all are stopped
}

// freezeFile returns the group's freezeFile, or ErrNoFreezer.
func (g *Group) freezeFile() (freezeFile, error) {
	if g.v2 != "" {
		b := freezeFile{filepath.Join(g.v2, "cgroup.freeze"), "1", "0", filepath.Join(g.v2, "cgroup.events"), "frozen 1"}
		if _, err := os.Stat(b.file); err == nil { // Linux 5.2
			return b, nil
		}
	}
	for _, p := range g.v1 {
		file := filepath.Join(p, "freezer.state")
		if _, err := os.Stat(file); err == nil {
			return freezeFile{file, "FROZEN", "THAWED", file, "FROZEN"}, nil
		}
	}
	return freezeFile{}, ErrNoFreezer
}

// CanFreeze reports whether Freeze works.
func (g *Group) CanFreeze() bool {
	_, err := g.freezeFile()
	return err == nil
}

// frozen reports whether every process is stopped.
func (b freezeFile) frozen() (bool, error) {
	text, err := os.ReadFile(b.state)
	if err != nil {
		return false, err
	}
	return strings.Contains("\n"+string(text), "\n"+b.stopped+"\n"), nil
}

// Frozen reports whether the last transition stopped the group.
func (g *Group) Frozen() (bool, error) {
	b, err := g.freezeFile()
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile(b.file)
	word := strings.TrimSpace(string(text))
	return word != b.start, err
}

// Freeze stops every process of the group and returns when all are stopped. On
// error they run.
func (g *Group) Freeze(ctx context.Context) error {
	b, err := g.freezeFile()
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.file, []byte(b.stop), 0); err != nil {
		return err
	}
	if err := pollFast(ctx, b.frozen); err != nil {
		os.WriteFile(b.file, []byte(b.start), 0) //nolint:errcheck // the error that led here matters more
		return fmt.Errorf("wait until all processes are frozen: %w", err)
	}
	return nil
}

// Thaw lets the group's processes run; it does not wait until they do, since they
// may be stopped again. It returns nil for a group that has no freezer or no longer
// exists.
func (g *Group) Thaw(context.Context) error {
	b, err := g.freezeFile()
	if err != nil {
		return nil //nolint:nilerr // nothing can have been stopped
	}
	err = os.WriteFile(b.file, []byte(b.start), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// pollFast is poll for changes that take a tenth of a millisecond.
func pollFast(ctx context.Context, done func() (bool, error)) error {
	const interval = 10 * time.Microsecond
	for range 20 {
		if ok, err := done(); ok || err != nil {
			return err
		}
		time.Sleep(interval)
	}
	return poll(ctx, done)
}
