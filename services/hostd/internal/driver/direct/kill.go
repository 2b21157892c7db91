package direct

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// killTree kills the descendants of the process root, but not root, until none
// remains or root has ended.
func killTree(ctx context.Context, root int, gone <-chan struct{}) error {
	return repeat(ctx, 0, func() (int, error) {
		select {
		case <-gone:
			return 0, nil
		default:
		}
		all, err := live.Processes()
		if err != nil {
			return 0, err
		}
		return kill(live.Descendants(all, root), func(pid int) bool {
			parent := parentOf(pid) // the shim, if its own parent has ended since
			return parent == all[pid] || parent == root
		}), nil
	})
}

// killMarked kills the processes that were started with the sandbox's id in
// their environment, regardless of their parent, until none has been found for
// the time settle.
func killMarked(ctx context.Context, id sandbox.ID, settle time.Duration) error {
	mark := []byte("\x00" + idVariable + "=" + string(id) + "\x00")
	return repeat(ctx, settle, func() (int, error) {
		all, err := live.Processes()
		if err != nil {
			return 0, err
		}
		return kill(slices.Collect(maps.Keys(all)), func(pid int) bool {
			return bytes.Contains(append([]byte{0}, environOf(pid)...), mark)
		}), nil
	})
}

// repeat calls f until it has found nothing to kill for the time settle.
func repeat(ctx context.Context, settle time.Duration, f func() (int, error)) error {
	quiet := time.Now()
	for {
		n, err := f()
		if err != nil {
			return err
		}
		pause := 10 * time.Millisecond
		if n > 0 {
			quiet, pause = time.Now(), time.Millisecond
		} else if time.Since(quiet) >= settle {
			return nil
		}
		if !waiting.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// kill kills those pids for which same returns true, and returns how many there were to
// kill.
func kill(pids []int, same func(pid int) bool) int {
	n := 0
	for _, pid := range pids {
		if killIf(pid, same) {
			n++
		}
	}
	return n
}
