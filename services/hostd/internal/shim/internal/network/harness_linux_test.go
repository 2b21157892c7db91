package network

import (
	"context"
	"io"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/mux"
)

// apart runs f on a thread that change has separated from the others, and that ends with f. It
// skips the test if change fails, such as without permission.
func apart(t *testing.T, change func() error, f func()) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if err = change(); err == nil {
			f()
		}
	}()
	<-done
	if err != nil {
		t.Skipf("cannot separate a thread: %v", err)
	}
}

// inRoot runs f with dir as its root directory.
func inRoot(t *testing.T, dir string, f func()) {
	t.Helper()
	apart(t, func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Chroot(dir); err != nil {
			return err
		}
		return unix.Chdir("/")
	}, f)
}

// inNetwork runs f in a network of its own that has only a loopback. Connections that f makes
// stay there, whatever ports the machine uses.
func inNetwork(t *testing.T, f func()) {
	t.Helper()
	apart(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		lo, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		lo.SetUint16(unix.IFF_UP)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}, f)
}

// muxPair returns the two ends of a channel, hostd's and the shim's. accept gets the streams that
// either end opens.
func muxPair(t *testing.T, accept func(*mux.Stream)) (hostd, shim *mux.Mux) {
	t.Helper()
	var carrying sync.WaitGroup
	done := make(chan struct{})
	end := func(even bool) (*mux.Mux, chan struct{}) {
		wake := make(chan struct{}, 1)
		return mux.New(mux.Config{Even: even, Accept: accept, Wake: func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}}), wake
	}
	carry := func(from, to *mux.Mux, wake <-chan struct{}) {
		for {
			select {
			case <-wake:
			case <-done:
				return
			}
			for from.Pending() {
				for rest := from.Append(nil, 64<<10); len(rest) > 0; {
					ty, payload, next, ok := mux.Split(rest)
					if !ok || to.Handle(ty, payload) != nil {
						return
					}
					rest = next
				}
			}
		}
	}
	hostd, hostdWake := end(true)
	shim, shimWake := end(false)
	carrying.Go(func() { carry(hostd, shim, hostdWake) })
	carrying.Go(func() { carry(shim, hostd, shimWake) })
	t.Cleanup(func() {
		hostd.Break(io.ErrClosedPipe)
		shim.Break(io.ErrClosedPipe)
		close(done)
		carrying.Wait()
	})
	return hostd, shim
}

// opener opens streams to hostd on a channel.
type opener struct{ m *mux.Mux }

func (o opener) OpenStream(ctx context.Context, target string) (*mux.Stream, error) {
	return o.m.Open(ctx, target)
}
