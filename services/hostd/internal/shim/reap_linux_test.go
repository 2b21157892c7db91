package shim

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/process"
)

// forkerOnly returns a shim that only forks; the test waits for its children.
func forkerOnly(t *testing.T) *Shim {
	t.Helper()
	s := New(Config{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.forker()
	}()
	t.Cleanup(func() {
		close(s.forks)
		<-over
	})
	return s
}

// startStopped starts a process that ends only by a signal.
func startStopped(t *testing.T, s *Shim) *proc {
	p := &proc{s: s, abandoned: true}
	s.mu.Lock()
	s.spawning++
	s.mu.Unlock()
	if err := p.spawnInSlot(&process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "kill -STOP $$"}}); err != nil {
		t.Error(err)
		return p
	}
	t.Cleanup(func() {
		syscall.Kill(p.pid, syscall.SIGKILL) //nolint:errcheck // it was not waited for
		syscall.Wait4(p.pid, nil, 0, nil)    //nolint:errcheck // as above
	})
	return p
}

// TestExitBeforeTheForkIsNotTheChilds: a process that ends just before a fork is not
// mistaken for the new child, regardless of the child's pid.
func TestExitBeforeTheForkIsNotTheChilds(t *testing.T) {
	s := forkerOnly(t)
	const next = 1000
	first := startStopped(t, s).pid
	syscall.ForkLock.RLock() // blocks forks
	done := make(chan *proc)
	go func() { done <- startStopped(t, s) }()
	for syscall.ForkLock.TryRLock() {
		syscall.ForkLock.RUnlock()
		runtime.Gosched()
	}
	for pid := first + 1; pid <= first+next; pid++ { // adopted children
		s.mu.Lock()
		s.childEnded(pid, syscall.WaitStatus(syscall.SIGKILL))
	}
	syscall.ForkLock.RUnlock()
	p := <-done
	if p.pid <= first || p.pid > first+next {
		t.Skipf("pid %d is too far from %d", p.pid, first)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.reaped || s.pids[p.pid] != p {
		t.Errorf("the child was marked as ended: %+v", p.exit)
	}
}

// TestAdoptedChildrenUseNoMemory, even while a process is being started.
func TestAdoptedChildrenUseNoMemory(t *testing.T) {
	s := New(Config{})
	s.spawning++
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const children, most = 1 << 18, 1 << 20
	before := heap()
	for pid := range children {
		s.mu.Lock()
		s.childEnded(pid+1, 0)
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d bytes for %d children", grown, children)
	}
	runtime.KeepAlive(s)
}
