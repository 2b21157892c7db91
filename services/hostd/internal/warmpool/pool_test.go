package warmpool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
	"github.com/millrace/millrace/services/hostd/internal/templates"
)

// fake is a driver whose instances do nothing.
type fake struct{ driver.Driver }

func (fake) Name() string { return "fake" }

// instance is an instance of fake.
type instance struct {
	driver.Instance
	done   chan struct{}
	name   string
	rename error
}

func (i *instance) Done() <-chan struct{} { return i.done }

func (i *instance) Rename(name string) error {
	i.name = name
	return i.rename
}

// fakes creates and removes instances, and counts them.
type fakes struct {
	mu     sync.Mutex
	there  map[sandbox.ID]*instance
	rename error // result of Rename of those to be created
}

func (f *fakes) pool(most int, mib uint64) *Pool {
	f.there = map[sandbox.ID]*instance{}
	return New(Config{
		Max: most, MemoryMiB: mib,
		Dir:     func(sandbox.ID) string { return "." },
		Hold:    func(template.ID) *templates.Tree { return nil },
		Record:  func(sandbox.ID, string, *templates.Tree) error { return nil },
		Forget:  func(sandbox.ID) error { return nil },
		Prepare: func(context.Context, driver.Driver, *driver.Spec) error { return nil },
		Create: func(_ context.Context, _ driver.Driver, s driver.Spec) (driver.Instance, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.there[s.ID] = &instance{done: make(chan struct{}), rename: f.rename}
			return f.there[s.ID], nil
		},
		Remove: func(_ context.Context, _ driver.Driver, id sandbox.ID, _ driver.Instance) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.there, id)
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

// settle does all work of Run that there is at a time, and returns the number of instances.
func (f *fakes) settle(p *Pool, now time.Time) int {
	for {
		old, k, _ := p.next(now)
		p.discard(context.Background(), old)
		if k == nil {
			return len(f.there)
		}
		p.create(context.Background(), context.Background(), k)
	}
}

func offer(mib uint32) drivers.Offer {
	return drivers.Offer{Driver: fake{}, Caps: driver.Caps{WarmMiB: mib}}
}

func TestPoolIsBoundedByCountAndMemory(t *testing.T) {
	for _, tt := range []struct {
		name    string
		most    int
		memory  uint64
		mib     uint32
		specs   int
		creates int // of each spec at once
		want    int // instances
	}{
		{"no spec", 64, 1000, 4, 0, 0, 0},
		{"no pool", 0, 1000, 4, 1, 1, 0},
		{"a driver that needs none", 64, 1000, 0, 1, 1, 0},
		{"small instances", 64, 1000, 4, 1, 1, 16},
		{"large instances", 64, 1000, 40, 1, 1, 2},
		{"a burst", 64, 1000, 4, 1, 50, 50},
		{"a burst above the maximum", 64, 1000, 4, 1, 100, 64},
		{"a burst above the memory", 64, 100, 4, 1, 100, 25},
		{"memory for none", 64, 3, 4, 1, 1, 0},
		{"specs share both", 64, 1000, 4, 4, 100, 64},
		{"specs beyond the maximum are not kept", 64, 1000, 40, 9, 1, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f fakes
			p := f.pool(tt.most, tt.memory)
			for n := range tt.specs {
				for range tt.creates {
					if _, ok := p.Acquire(offer(tt.mib), driver.Spec{PIDs: uint32(n)}); ok {
						t.Fatal("acquired an instance that was not created")
					}
					p.Keep(offer(tt.mib), driver.Spec{PIDs: uint32(n)})
				}
			}
			if got := f.settle(p, time.Now()); got != tt.want {
				t.Errorf("%d instances, want %d", got, tt.want)
			}
		})
	}
}

func TestPoolShrinksAfterABurst(t *testing.T) {
	var f fakes
	p := f.pool(64, 1000)
	for range 60 {
		p.Acquire(offer(16), driver.Spec{})
		p.Keep(offer(16), driver.Spec{})
	}
	now := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 60}, {59 * time.Second, 60}, {61 * time.Second, 30}, {181 * time.Second, 7}, {9 * time.Minute, 4}, {11 * time.Minute, 0}} {
		if got := f.settle(p, now.Add(tt.after)); got != tt.want {
			t.Errorf("after %v: %d instances, want %d", tt.after, got, tt.want)
		}
	}
}

func TestPoolIsEmptyDuringADrain(t *testing.T) {
	var f fakes
	p := f.pool(64, 1000)
	p.Keep(offer(4), driver.Spec{})
	for _, tt := range []struct {
		draining bool
		want     int
	}{{false, 16}, {true, 0}, {false, 16}} {
		p.SetDraining(tt.draining)
		if got := f.settle(p, time.Now()); got != tt.want {
			t.Errorf("draining %v: %d instances, want %d", tt.draining, got, tt.want)
		}
	}
}

// The pool is refilled beside one create after another, but not beside many at once.
func TestPoolLeavesTheCPUsToABurst(t *testing.T) {
	var f fakes
	p := f.pool(64, 1000)
	p.Keep(offer(4), driver.Spec{})
	var ends []func()
	for range maxCreating() + 1 {
		ends = append(ends, p.BeginCreate())
	}
	if got := f.settle(p, time.Now()); got != 0 {
		t.Errorf("%d instances created beside a burst", got)
	}
	ends[0]()
	ends[0]() // counts once
	if got := f.settle(p, time.Now()); got != 16 {
		t.Errorf("%d instances beside %d creates, want 16", got, maxCreating())
	}
}

// A sandbox gets an instance that runs and has its name.
func TestAcquiredInstanceHasTheNameOfItsSandbox(t *testing.T) {
	var f fakes
	p := f.pool(2, 1000)
	p.Keep(offer(4), driver.Spec{})
	f.settle(p, time.Now())
	for _, ended := range f.there {
		close(ended.done)
		break
	}
	warm, ok := p.Acquire(offer(4), driver.Spec{ID: "i1"})
	if !ok || warm.Inst.(*instance).name != "i1" {
		t.Fatalf("acquired %+v %v", warm.Inst, ok)
	}
	if _, ok := p.Acquire(offer(4), driver.Spec{ID: "i2"}); ok {
		t.Error("acquired an instance that has ended")
	}
	f.rename = errors.New("no such file")
	f.settle(p, time.Now())
	if _, ok := p.Acquire(offer(4), driver.Spec{ID: "i3"}); ok {
		t.Error("acquired an instance with another name")
	}
	f.rename = kind.New(kind.Unimplemented, "rename", "", "")
	f.settle(p, time.Now())
	if _, ok := p.Acquire(offer(4), driver.Spec{ID: "i4"}); !ok {
		t.Error("no instance of a driver that cannot rename")
	}
	if got := f.settle(p, time.Now()); got != 4 { // two with sandboxes and two in the pool
		t.Errorf("%d instances", got)
	}
}
