package children

import (
	"runtime"
	"syscall"
	"testing"
)

// forkOnly returns children that are only forked; the test waits for them.
func forkOnly(t *testing.T) *Children {
	t.Helper()
	c := New(Config{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.fork()
	}()
	t.Cleanup(func() {
		close(c.forks)
		<-over
	})
	return c
}

// startStopped starts a child that ends only by a signal.
func startStopped(t *testing.T, c *Children) *Child {
	ch, err := c.Start("/bin/sh", []string{"sh", "-c", "kill -STOP $$"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}}, nil)
	if err != nil {
		t.Error(err)
		return &Child{c: c}
	}
	t.Cleanup(func() {
		syscall.Kill(ch.PID, syscall.SIGKILL)
		syscall.Wait4(ch.PID, nil, 0, nil)
	})
	return ch
}

// TestExitBeforeTheForkIsNotTheChilds: a process that ends just before a fork is not
// mistaken for the new child, regardless of the child's pid.
func TestExitBeforeTheForkIsNotTheChilds(t *testing.T) {
	c := forkOnly(t)
	const next = 1000
	first := startStopped(t, c).PID
	syscall.ForkLock.RLock() // blocks forks
	done := make(chan *Child)
	go func() { done <- startStopped(t, c) }()
	for syscall.ForkLock.TryRLock() {
		syscall.ForkLock.RUnlock()
		runtime.Gosched()
	}
	for pid := first + 1; pid <= first+next; pid++ { // adopted children
		c.mu.Lock()
		c.childEnded(pid, syscall.WaitStatus(syscall.SIGKILL))
	}
	syscall.ForkLock.RUnlock()
	ch := <-done
	if ch.PID <= first || ch.PID > first+next {
		t.Skipf("pid %d is too far from %d", ch.PID, first)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.ended || c.running[ch.PID] != ch {
		t.Errorf("the child was marked as ended: %v", ch.status)
	}
}

// TestAdoptedChildrenUseNoMemory.
func TestAdoptedChildrenUseNoMemory(t *testing.T) {
	c := New(Config{})
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const children, most = 1 << 18, 1 << 20
	before := heap()
	for pid := range children {
		c.mu.Lock()
		c.childEnded(pid+1, 0)
	}
	if grown := heap() - before; grown > most {
		t.Errorf("%d bytes for %d children", grown, children)
	}
	runtime.KeepAlive(c)
}
