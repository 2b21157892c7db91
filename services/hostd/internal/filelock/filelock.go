// Package filelock lets one at a time do something on a machine.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Wait makes the file if there is none, and returns when nobody else holds its lock, in
// this process or another. The lock goes with the process.
func Wait(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil //nolint:errcheck // nothing was written
		}
		select {
		case <-time.After(100 * time.Millisecond):
			if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
				continue
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		f.Close() //nolint:errcheck // nothing was written
		return nil, err
	}
}
