//go:build linux

package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// signals stop a sandbox where no cgroup freezes it: a live.Freezer. Each process gets
// SIGSTOP, parents before their children, and SIGCONT in the reverse order, so that
// none sees another one stopped. Processes that were stopped before remain so. A process
// can detect the pause by a handler for SIGCONT.
type signals struct {
	dir string // Spec.Dir
	pid int    // first process of the sandbox
}

// pauseFile exists from before the first process is stopped until after the last
// one continues.
const pauseFile = "pause"

// pauseState is its content.
type pauseState struct {
	All bool  // every process was stopped
	Own []int // pids of processes that were stopped before
}

// Frozen implements live.Freezer.
func (s signals) Frozen() (bool, error) {
	_, began, err := s.read()
	return began, err
}

// Freeze implements live.Freezer.
func (s signals) Freeze(ctx context.Context) error {
	h, began, err := s.read()
	if err != nil || h.All {
		return err
	}
	if !began { // otherwise it is not known which were stopped before: all will continue
		if err := s.write(h); err != nil {
			return err
		}
		if h.Own, _, _, err = s.stop(); err != nil {
			return err
		}
	}
	if err := s.stopAll(ctx); err != nil {
		return errors.Join(err, s.thaw(h))
	}
	h.All = true
	return s.write(h)
}

// Thaw implements live.Freezer.
func (s signals) Thaw(context.Context) error {
	h, began, err := s.read()
	if err != nil || !began {
		return err
	}
	return s.thaw(h)
}

func (s signals) thaw(h pauseState) error {
	all, err := family(s.pid)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(all) {
		if !slices.Contains(h.Own, p.pid) {
			p.send(unix.SIGCONT)
		}
	}
	err = os.Remove(filepath.Join(s.dir, pauseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// stopAll stops what still runs, and its new children, until nothing does.
func (s signals) stopAll(ctx context.Context) error {
	// A process that waits for the kernel may stop only when that wait ends, or may be
	// waiting for a child that it has vforked and that is stopped.
	const maxRounds = 50 // rounds
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for rounds := 0; ; rounds++ {
		_, waiting, running, err := s.stop()
		if err != nil || running == 0 && (waiting == 0 || rounds >= maxRounds) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop sends SIGSTOP to each process that is not stopped yet. It returns the pids of
// stopped processes, and how many wait for the kernel or run.
func (s signals) stop() (pids []int, waiting, running int, err error) {
	all, err := family(s.pid)
	for _, p := range all {
		state := p.state()
		if state == stopped {
			pids = append(pids, p.pid)
			continue
		}
		p.send(unix.SIGSTOP)
		if state == blocked {
			waiting++
		} else {
			running++
		}
	}
	return pids, waiting, running, err
}

func (s signals) read() (h pauseState, began bool, err error) {
	b, err := os.ReadFile(filepath.Join(s.dir, pauseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	if json.Unmarshal(b, &h) != nil {
		h = pauseState{} // its write was interrupted
	}
	return h, true, nil
}

func (s signals) write(h pauseState) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, pauseFile)
	if err := os.WriteFile(path, b, 0o600); err != nil || !s.gone() {
		return err
	}
	// Destroy, which does not wait for transitions, may have removed all files before.
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// gone reports whether the first process has ended.
func (s signals) gone() bool {
	state, _, err := live.Parent(s.pid)
	return err != nil || state == 'Z' || state == 'X'
}

// member is a process of a family.
type member struct{ pid, parent int }

// family returns a process with all its descendants, parents before their children;
// none if it has ended.
func family(root int) ([]member, error) {
	parents, err := live.Processes()
	if err != nil {
		return nil, err
	}
	var all []member
	for _, pid := range append([]int{root}, live.Descendants(parents, root)...) {
		if parent, ok := parents[pid]; ok {
			all = append(all, member{pid, parent})
		}
	}
	return all, nil
}

// threadState is the state of a process's threads.
type threadState int

const (
	stopped threadState = iota // stopped, or ended
	blocked                    // waits in the kernel
	runs
)

// state returns the state of the thread that is furthest from stopped.
func (p member) state() threadState {
	most := stopped
	for _, tid := range live.Threads(p.pid) {
		state, _, err := live.Parent(tid)
		switch {
		case err != nil, slices.Contains([]byte("TtZX"), state):
		case state == 'D':
			most = max(most, blocked)
		default:
			most = runs
		}
	}
	return most
}

// send sends a signal, unless the process has ended and its pid was reused.
func (p member) send(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if _, parent, err := live.Parent(p.pid); err == nil && parent == p.parent {
		unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}
