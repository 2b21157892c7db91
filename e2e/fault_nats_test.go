package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// sameRuns returns a function that fails if a program exited or restarted since.
func sameRuns(t *testing.T, s *rig.Split) func() {
	t.Helper()
	before := map[string]int{}
	for _, name := range s.Names() {
		before[name] = s.Program(name).PID()
	}
	return func() {
		t.Helper()
		for _, name := range s.Names() {
			p := s.Program(name)
			if name[:4] != "nats" && (!p.Running() || p.PID() != before[name]) {
				t.Errorf("%s exited", name)
			}
		}
	}
}

// The only NATS server is killed under running streams: all programs wait for it and
// continue. Covers T-57.
func TestFaultNATSKilled(t *testing.T) {
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	c := newCrowd(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 2 * time.Millisecond}.spec())
	c.watch(s.APIs, box.ID, id, 0, surfaces...)
	fat, fatPID := launch(t, s.APIs[0], box.ID, counter{every: 2 * time.Millisecond, pad: 3000}.spec())
	c.watch(s.APIs, box.ID, fat, 1, "events", "connect")
	same := sameRuns(t, s)
	var stalls, calls []time.Duration
	for i := range 14 {
		c.progress(t, 20)
		c.stalled()
		s.Program("nats-1").Kill9()
		if i%4 == 3 {
			<-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond)
		}
		must(t, s.RestartProgram("nats-1"))
		calls = append(calls, stat(t, s.APIs[i%2], box.ID))
		c.progress(t, 20)
		stalls = append(stalls, c.stalled())
	}
	same()
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	stopCounter(t, s.APIs, box.ID, fatPID, "stdin")
	c.finish(t, counterCode)
	checkPauses(t, c)
	t.Logf("NATS killed: silence %s; first call answered after %s; the processes themselves paused at most %v",
		percentiles(stalls), percentiles(calls), c.paused())
}

// stat sends a request to the sandbox's shim after a kill, and returns how long the
// response took.
func stat(t *testing.T, a *rig.API, sandbox string) time.Duration {
	t.Helper()
	began := time.Now()
	ans := a.RPC(t, sandbox, "/filesystem.Filesystem/Stat", map[string]any{"path": "/tmp"})
	if took := time.Since(began); ans.Status != http.StatusOK || took > 15*time.Second {
		t.Errorf("Stat after %v: %v", took, ans)
	}
	return time.Since(began)
}

// Each of three NATS servers is killed under load in turn and restarts later. Covers T-58.
func TestFaultNATSNodeKilled(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{NATS: 3, Gateways: 2})
	box := s.APIs[0].Create(t)
	c := newCrowd(t)
	pids := make([]uint32, 4)
	for i := range pids {
		var id string
		id, pids[i] = launch(t, s.APIs[0], box.ID, counter{every: 5 * time.Millisecond, pad: 500 * i}.spec())
		c.watch(s.APIs, box.ID, id, i%2, "events", "connect")
	}
	same := sameRuns(t, s)
	for i := range 3 {
		name := fmt.Sprintf("nats-%d", i+1)
		c.progress(t, 100)
		c.stalled()
		s.Program(name).Kill9()
		c.progress(t, 200)
		down := c.stalled()
		must(t, s.RestartProgram(name))
		c.progress(t, 400)
		t.Logf("%s killed: silence %v, restarted: %v", name, down.Round(time.Millisecond), c.stalled().Round(time.Millisecond))
	}
	same()
	for _, pid := range pids {
		stopCounter(t, s.APIs, box.ID, pid, "stdin")
	}
	c.finish(t, counterCode)
	t.Logf("the processes themselves paused at most %v", c.paused())
}

// With two of three NATS servers down, stored records can be read, writes are rejected in
// time, and processes continue; nothing is lost. Covers T-59.
func TestFaultNATSMinority(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{NATS: 3, Gateways: 2})
	box := s.APIs[0].Create(t)
	past, _ := launch(t, s.APIs[0], box.ID, counter{lines: 500}.spec())
	before := newCrowd(t)
	before.watch(s.APIs, box.ID, past, 0, "events")
	before.finish(t, counterCode)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 5 * time.Millisecond}.spec())
	c := newCrowd(t)
	c.watch(s.APIs, box.ID, id, 0, surfaces...)
	c.progress(t, 50)
	same := sameRuns(t, s)
	s.Program("nats-2").Kill9()
	s.Program("nats-3").Kill9()
	refused := make(chan string, 1)
	began := time.Now()
	go func() {
		ans, err := s.APIs[0].Call(http.MethodPost, "/commands", map[string]any{"cmd": "true"}, "E2b-Sandbox-Id", box.ID)
		if refused <- ""; err != nil || ans.Status != http.StatusServiceUnavailable && ans.Status != http.StatusGatewayTimeout {
			t.Errorf("a start without a majority: %v %v", ans, err)
		}
	}()
	late := newCrowd(t)
	late.watch(s.APIs, box.ID, past, 0, "events", "connect", "durable")
	late.finish(t, counterCode)
	t.Logf("a record was read without a majority after %v", time.Since(began))
	<-refused
	t.Logf("a start was rejected after %v", time.Since(began))
	must(t, s.RestartProgram("nats-2"))
	must(t, s.RestartProgram("nats-3"))
	c.progress(t, 200)
	t.Logf("silence %v", c.stalled().Round(time.Millisecond))
	same()
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	c.finish(t, counterCode)
	checkPauses(t, c)
}
