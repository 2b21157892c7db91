// Package flock serializes work on a machine with a lock file.
package flock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Lock creates the file if it does not exist, and returns once it holds the file's
// exclusive lock. The lock excludes other holders in this and other processes, and ends
// with the process.
func Lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
			if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
				continue
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		f.Close()
		return nil, err
	}
}
