//go:build linux

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// tasks stops a sandbox's tasks by gVisor itself. A frozen cgroup is no way: of
// what gVisor runs, some was killed by a segmentation fault when it was thawed. The
// sandbox's own process is asked, as runsc does: to run runsc for it takes a
// hundred times as long. GVisor counts the stops and dies of a start too many, so
// that what is about to be done is noted down before.
type tasks struct{ *box }

// What is in stillFile. Without the file the sandbox runs.
const (
	stillFile = "still"
	moves     = "moves" // it is being stopped or started, or somebody was cut off there
	stands    = "stands"
)

// Freeze is live.Brake.Freeze.
func (t tasks) Freeze(ctx context.Context) error { return t.turn(ctx, true, "containerManager.Pause") }

// Thaw is live.Brake.Thaw.
func (t tasks) Thaw(ctx context.Context) error { return t.turn(ctx, false, "containerManager.Resume") }

// Frozen is live.Brake.Frozen.
func (t tasks) Frozen() (bool, error) {
	t.still.Lock()
	defer t.still.Unlock()
	return t.frozen()
}

// turn has the sandbox stand or run. What it has begun it ends, whatever becomes of
// ctx.
func (t tasks) turn(ctx context.Context, stand bool, method string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.still.Lock()
	defer t.still.Unlock()
	if on, err := t.frozen(); on == stand || err != nil {
		return err
	}
	if err := t.r.note(moves); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := t.r.control(ctx, method, struct{}{}, nil); err != nil {
		return t.settle(err)
	}
	return t.r.noteStill(stand)
}

// frozen reads what was noted down; after somebody was cut off, it finds out.
func (t tasks) frozen() (bool, error) {
	b, err := os.ReadFile(t.r.in(stillFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil || string(b) == stands:
		return err == nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	stand, err := t.r.standing(ctx)
	if err != nil {
		return false, t.settle(err)
	}
	return stand, t.r.noteStill(stand)
}

// settle waits, after an error, for the sandbox to be gone, if it is going: then it
// is known what the error means.
func (t tasks) settle(err error) error {
	select {
	case <-t.Done():
	case <-time.After(time.Second):
	}
	return err
}

func (r *runsc) noteStill(stand bool) error {
	if stand {
		return r.note(stands)
	}
	return os.Remove(r.in(stillFile))
}

func (r *runsc) note(what string) error {
	tmp := r.in(stillFile + ".tmp")
	if err := os.WriteFile(tmp, []byte(what), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, r.in(stillFile))
}

// standing finds out whether all tasks stand: where they are in gVisor's own
// program tells.
func (r *runsc) standing(ctx context.Context) (bool, error) {
	const looks, pause = 100, 10 * time.Millisecond // a stop may be under way
	for range looks {
		var stacks string
		if err := r.control(ctx, "debug.Stacks", struct{}{}, &stacks); err != nil {
			return false, err
		}
		all, stopped := strings.Count(stacks, "kernel.(*Task).run("), strings.Count(stacks, "kernel.(*Task).doStop(")
		if all > 0 && all == stopped {
			return true, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return false, nil
}

// maxControl is the most bytes of an answer.
const maxControl = 64 << 20

// control calls a method of the sandbox's own process.
func (r *runsc) control(ctx context.Context, method string, arg, result any) error {
	conn, err := r.dialControl(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()                                                           //nolint:errcheck // one question, one connection
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // a unix socket takes deadlines
	defer stop()
	question, err := json.Marshal(map[string]any{"method": method, "arg": arg})
	if err != nil {
		return err
	}
	if _, err := conn.Write(question); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	var answer struct {
		Success bool            `json:"success"`
		Err     string          `json:"err"`
		Result  json.RawMessage `json:"result"`
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxControl)).Decode(&answer); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: %w", method, err))
	}
	if !answer.Success {
		return fmt.Errorf("%s: %.1000s", method, answer.Err)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

// dialControl connects to the sandbox's own process, wherever its socket is.
func (r *runsc) dialControl(ctx context.Context) (conn net.Conn, err error) {
	for _, dir := range append([]string{r.in(stateDir)}, otherSockets()...) {
		conn, err = live.DialAt(ctx, dir, r.socket())
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return conn, err
}

// socket is the name of the socket, otherSockets where it is if the path of runsc's
// own directory is too long for an address.
func (r *runsc) socket() string { return "runsc-" + string(r.id) + ".sock" }

func otherSockets() []string { return []string{"/var/run", "/run", "/tmp"} }
