package disk

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// newTestGuard returns a guard that counts what it runs in the background.
func newTestGuard(running *sync.WaitGroup) *Guard {
	return New(Config{Go: running.Go, Log: slog.New(slog.DiscardHandler)})
}

// All resources that the disk is short of are reported.
func TestShortages(t *testing.T) {
	for _, tt := range []struct {
		space Space
		want  []string
	}{
		{Space{Free: 2 << 30, Total: 100 << 30, FreeFiles: 1e6, Files: 1e7}, nil},
		{Space{Free: 1 << 29, Total: 100 << 30, FreeFiles: 1e6, Files: 1e7}, []string{"bytes"}},
		{Space{Free: 2 << 30, Total: 100 << 30, FreeFiles: 1e3, Files: 1e7}, []string{"files"}},
		{Space{Free: 1 << 29, Total: 100 << 30, FreeFiles: 1e3, Files: 1e7}, []string{"bytes", "files"}},
		{Space{Free: 1 << 29, Total: 1 << 30}, nil},
	} {
		var got []string
		for _, s := range tt.space.shortages(1) {
			got = append(got, s.what)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: short of %v, want %v", tt.space, got, tt.want)
		}
	}
}

func TestTopConsumer(t *testing.T) {
	a, b, c := &User{ID: "a"}, &User{ID: "b"}, &User{ID: "c"}
	has := func(u *User, bytes uint64, limited bool) consumer {
		return consumer{users: []*User{u}, used: driver.Stats{DiskBytes: bytes}, limited: limited}
	}
	for _, tt := range []struct {
		all  []consumer
		want *User
	}{
		{nil, nil},
		{[]consumer{has(a, 99, false), has(b, 98, false)}, nil},
		{[]consumer{has(a, 100, false), has(b, 101, false), has(c, 99, false)}, b},
		{[]consumer{has(a, 100, false), has(b, 1000, true)}, a},
		{[]consumer{has(a, 99, false), has(b, 1000, true), has(c, 2000, true)}, c},
	} {
		got := topConsumer(tt.all, 100, func(s *driver.Stats) uint64 { return s.DiskBytes })
		if (got == nil) != (tt.want == nil) || got != nil && got.users[0] != tt.want {
			t.Errorf("%v: %v", tt.all, got)
		}
	}
}

// slowDestroy is an instance whose Destroy may never return.
type slowDestroy struct {
	driver.Instance
	has   uint64
	stays bool
	asked chan struct{} // closed when Destroy is called
}

func (s slowDestroy) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{DiskBytes: s.has}, nil
}

func (s slowDestroy) Destroy(ctx context.Context) error {
	close(s.asked)
	if s.stays {
		<-ctx.Done()
	}
	return ctx.Err()
}

// An eviction does not wait for another one that takes long.
func TestSlowEvictionDoesNotDelayTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var running sync.WaitGroup
		g := newTestGuard(&running)
		var users []*User
		for _, s := range []slowDestroy{{has: 90, stays: true}, {has: 80}, {has: 70, stays: true}} {
			s.asked = make(chan struct{})
			users = append(users, &User{Instance: func() driver.Instance { return s }})
		}
		shortages := []shortage{{free: 10, reserve: 20, usage: func(s *driver.Stats) uint64 { return s.DiskBytes }}}
		volume := consumer{users: users[:2], volume: "v", used: driver.Stats{DiskBytes: 100}}
		for _, grew := range [][]consumer{{volume}, nil} {
			if g.evictOne(ctx, users, grew, shortages) == nil {
				t.Error("no sandbox is to be evicted")
			}
		}
		for i, u := range users {
			select {
			case <-u.Instance().(slowDestroy).asked:
			default:
				t.Errorf("sandbox %d is not destroyed", i)
			}
		}
		if ctx.Err() != nil {
			t.Error("evictOne waited for them")
		}
		cancel()
		running.Wait()
	})
}

// failingDestroy is an instance that cannot be destroyed.
type failingDestroy struct {
	driver.Instance
	asked *int
}

func (failingDestroy) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{DiskBytes: 100}, nil
}

func (u failingDestroy) Destroy(context.Context) error {
	*u.asked++
	return errors.New("it still runs")
}

// A sandbox that could not be destroyed is evicted again, after a pause.
func TestFailedEvictionIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		g := newTestGuard(&running)
		var asked int
		u := &User{Instance: func() driver.Instance { return failingDestroy{asked: &asked} }}
		shortages := []shortage{{free: 10, reserve: 20, usage: func(s *driver.Stats) uint64 { return s.DiskBytes }}}
		for want := 1; want <= 3; want++ {
			for range 3 {
				g.evictOne(t.Context(), []*User{u}, nil, shortages)
			}
			if asked != want {
				t.Errorf("asked %d times, want %d", asked, want)
			}
			waiting.Sleep(t.Context(), evictRetry+time.Millisecond)
		}
		running.Wait()
	})
}
