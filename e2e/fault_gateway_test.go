package e2e_test

import (
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// A gateway is killed while it streams: its clients resume on the other one, on every
// surface. Covers T-29 and T-49.
func TestFaultGatewayKilled(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 2 * time.Millisecond}.spec())
	c := newCrowd(t)
	c.watch(s.APIs, box.ID, id, 0, surfaces...)
	const rounds = 24
	var stalls []time.Duration
	for i := range rounds {
		c.progress(t, 20)
		c.stalled()
		_, err := s.Crash([]string{"gateway-1", "gateway-2"}[i%2])
		must(t, err)
		c.progress(t, 20)
		stalls = append(stalls, c.stalled())
	}
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	c.finish(t, counterCode)
	for _, l := range c.ledgers {
		t.Logf("%s: %d lines, reconnected %d times", l.name, l.lines.Load(), l.reconnects.Load())
	}
	t.Logf("a gateway killed: silence %s", percentiles(stalls))
}

// All gateways are killed at the same moment. Covers T-50.
func TestFaultAllGatewaysKilled(t *testing.T) {
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 2 * time.Millisecond}.spec())
	c := newCrowd(t)
	c.watch(s.APIs, box.ID, id, 0, surfaces...)
	c.watch(s.APIs, box.ID, id, 1, surfaces...)
	var stalls []time.Duration
	for range 6 {
		c.progress(t, 50)
		c.stalled()
		s.Program("gateway-1").Kill9()
		s.Program("gateway-2").Kill9()
		must(t, s.RestartAll())
		c.progress(t, 20)
		stalls = append(stalls, c.stalled())
	}
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	c.finish(t, counterCode)
	t.Logf("all gateways killed: silence %s", percentiles(stalls))
}

// A client disconnects after every event and resumes on the other gateway. Covers T-27.
func TestFaultClientGoneAfterEveryEvent(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 3 * time.Millisecond}.spec())
	events, others := 2_500, 500
	if os.Getenv(EnvSoak) != "" {
		events, others = 10_000, 1_000
	}
	c := newCrowdFor(t, 2*crowdTimeout)
	lines := c.add("events", id, &eventsReader{id: id, disconnects: events}, s.APIs, 0)
	sse := c.add("sse", id, &eventsReader{id: id, sse: true, disconnects: others}, s.APIs, 1)
	connect := c.add("connect", id, &connectReader{sandbox: box.ID, id: id, disconnects: others}, s.APIs, 0)
	began := time.Now()
	came := func(l *ledger, n int) bool {
		select {
		case <-l.settled:
			return true
		default:
			return l.reconnects.Load() >= uint64(n)
		}
	}
	if !rig.Poll(crowdTimeout, func() bool { return came(lines, events) && came(sse, others) && came(connect, others) }) {
		t.Errorf("after %v: %d, %d and %d events", time.Since(began), lines.reconnects.Load(), sse.reconnects.Load(), connect.reconnects.Load())
	}
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	took := time.Since(began)
	c.finish(t, counterCode)
	for _, l := range c.ledgers {
		t.Logf("%s: %d lines, reconnected %d times in %v", l.name, l.lines.Load(), l.reconnects.Load(), took)
		if n := l.cuts.Load(); n > 0 {
			t.Errorf("%s: cut off %d times", l.name, n)
		}
	}
}

// A gateway drains with a thousand open streams: each client receives a reconnect event,
// resumes on the other gateway and misses nothing. Covers T-126.
func TestFaultGatewayDrained(t *testing.T) {
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 100 * time.Millisecond}.spec())
	c := newCrowd(t)
	const streams = 1000
	for i := range streams {
		by := []string{"events", "events", "events", "sse", "connect"}[i%5]
		c.watch(s.APIs, box.ID, id, 0, by)
	}
	c.progress(t, 3)
	p := s.Program("gateway-1")
	began := time.Now()
	if err := p.Term(); err != nil {
		t.Error(err)
	}
	took := time.Since(began)
	c.progress(t, 3)
	stopCounter(t, s.APIs[1:], box.ID, pid, "stdin")
	c.finish(t, counterCode)
	var cuts, reconnects uint64
	for _, l := range c.ledgers {
		cuts, reconnects = cuts+l.cuts.Load(), reconnects+l.reconnects.Load()
	}
	t.Logf("SIGTERM with %d streams: exit code 0 after %v, %d reconnected", streams, took, reconnects)
	if cuts > 0 || reconnects < streams {
		t.Errorf("%d streams were cut off without a reconnect event, %d reconnected", cuts, reconnects)
	}
	if took > 10*time.Second {
		t.Errorf("the drain took %v", took)
	}
}

// A gateway is killed under a thousand readers, which all reconnect at the same moment.
// Covers T-40.
func TestFaultReconnectStorm(t *testing.T) {
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 100 * time.Millisecond}.spec())
	c := newCrowd(t)
	const streams = 1000
	for i := range streams {
		c.watch(s.APIs, box.ID, id, 0, []string{"events", "events", "sse", "connect"}[i%4])
	}
	c.progress(t, 3)
	c.stalled()
	s.Program("gateway-1").Kill9()
	c.progress(t, 3)
	t.Logf("a gateway with %d streams killed: the longest silence %v", streams, c.stalled().Round(time.Millisecond))
	stopCounter(t, s.APIs[1:], box.ID, pid, "stdin")
	c.finish(t, counterCode)
}

// `up`, which is all services in one process, is killed. Covers T-49, T-52 and T-57.
func TestFaultUpKilled(t *testing.T) {
	u := rig.NewUp(t, rig.Options{})
	apis := []*rig.API{u.API}
	box := u.Create(t)
	id, pid := launch(t, u.API, box.ID, counter{every: 2 * time.Millisecond}.spec())
	c := newCrowd(t)
	c.watch(apis, box.ID, id, 0, surfaces...)
	var stalls, back []time.Duration
	for range 12 {
		c.progress(t, 50)
		c.stalled()
		u.Kill9()
		began := time.Now()
		must(t, u.Restart())
		back = append(back, time.Since(began))
		c.progress(t, 50)
		stalls = append(stalls, c.stalled())
	}
	stopCounter(t, apis, box.ID, pid, "stdin")
	c.finish(t, counterCode)
	checkPauses(t, c)
	t.Logf("up killed: ready again after %s, silence %s; the process itself paused at most %v", percentiles(back), percentiles(stalls), c.paused())
}
