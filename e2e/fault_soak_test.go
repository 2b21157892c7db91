package e2e_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// EnvSoak is the duration of the random killer in seconds.
const EnvSoak = "MILLRACE_SOAK"

func soakTime(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv(EnvSoak)
	if v == "" {
		return usual
	}
	n, err := strconv.Atoi(v)
	must(t, err)
	return time.Duration(n) * time.Second
}

// Random programs are killed at random moments, about one per second, under clients that
// never stop: each sees each byte once, in order, and the true end. Covers T-69.
func TestFaultRandomKiller(t *testing.T) {
	t.Parallel()
	randomKiller(t, 1, 30*time.Second)
}

// The same with three NATS servers, which are killed too: none of them damages its files,
// and all streams are writable in the end. It does not run in parallel, because elections
// take seconds even on an idle machine.
func TestFaultRandomKillerOfThreeServers(t *testing.T) {
	s := randomKiller(t, 3, 50*time.Second)
	for _, name := range s.Names() {
		for line := range strings.Lines(s.Program(name).Log()) {
			if strings.Contains(line, "write error") || strings.Contains(line, "corrupt") || strings.Contains(line, "damaged") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	for i, a := range s.APIs {
		must(t, a.AwaitReady(time.Minute, s.Program(fmt.Sprintf("gateway-%d", i+1))))
		raw := string(a.Want(t, http.StatusOK, http.MethodGet, "/metrics", nil).Body)
		if n := strings.Count(raw, "\nmillrace_stream_writable{"); n < 15 || strings.Contains(writable(raw), "} 0") {
			t.Errorf("%d streams in the metrics:\n%s", n, raw)
		}
	}
}

// writable returns the samples that report whether streams are writable.
func writable(metrics string) (samples string) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "millrace_stream_writable{") {
			samples += line
		}
	}
	return samples
}

// randomKiller kills programs of a new topology under load for the duration of MILLRACE_SOAK.
func randomKiller(t *testing.T, servers int, usual time.Duration) *rig.Split {
	t.Helper()
	s := newTopology(t, rig.Topology{NATS: servers, Gateways: 2, Schedulers: 2, Reapers: 2, Hosts: 2})
	killRandomly(t, s, usual)
	return s
}

// killRandomly kills programs of a topology without sandboxes.
func killRandomly(t *testing.T, s *rig.Split, usual time.Duration) {
	t.Helper()
	within := soakTime(t, usual)
	before := countsOf(t, s.APIs[0])
	over := make(chan struct{})
	var clients sync.WaitGroup
	var ran atomic.Uint64
	all := newCrowdFor(t, within+2*soakTimeout)
	var mu sync.Mutex // guards all.ledgers
	const n = 10
	for i := range n {
		clients.Go(func() {
			c := soaker{t: t, s: s, n: i, crowd: all, mu: &mu}
			for round := 0; ; round++ {
				select {
				case <-over:
					return
				default:
				}
				if !c.round(round) {
					return
				}
				ran.Add(1)
			}
		})
	}
	kills := killer(t, s, time.Now().Add(within))
	close(over)
	must(t, s.RestartAll())
	clients.Wait()
	var lines, comes uint64
	var stall time.Duration
	for _, l := range all.ledgers {
		lines, comes = lines+l.lines.Load(), comes+l.reconnects.Load()
		l.mu.Lock()
		stall = max(stall, l.stall)
		l.mu.Unlock()
	}
	t.Logf("%v killed: %d processes, %d readers, %d lines, reconnected %d times, the longest silence %v; processes paused at most %v",
		kills, ran.Load(), len(all.ledgers), lines, comes, stall.Round(time.Millisecond), all.paused())
	got := countsOf(t, s.APIs[0]).since(before)
	if got.err != float64(ran.Load()) || got.started != got.err {
		t.Errorf("counts %+v, %d processes ran", got, ran.Load())
	}
	for _, a := range s.APIs {
		a.KillAll()
	}
	noneIntermediate(t, s.APIs[1], 0)
}

// killer kills one program after another until the time is over, and returns the counts.
func killer(t *testing.T, s *rig.Split, until time.Time) map[string]int {
	t.Helper()
	names := s.Names()
	kills := map[string]int{}
	var elected time.Time // time by which three servers have elected leaders again
	for time.Now().Before(until) {
		name := names[rand.IntN(len(names))]
		if s.Servers() > 1 && role(name) == "nats" {
			if time.Now().Before(elected) {
				continue
			}
			elected = time.Now().Add(electionTime)
		}
		p := s.Program(name)
		switch rand.IntN(5) {
		case 0: // pause it briefly
			p.Stop()
			<-time.After(time.Duration(rand.IntN(700)) * time.Millisecond)
			p.Cont()
			kills["stopped "+role(name)]++
		case 1: // kill it again after its restart
			p.Kill9()
			must(t, p.Restart())
			<-time.After(time.Duration(rand.IntN(150)) * time.Millisecond)
			fallthrough
		default:
			p.Kill9()
			<-time.After(time.Duration(rand.IntN(600)) * time.Millisecond)
			must(t, p.Restart())
			kills[role(name)]++
		}
		<-time.After(time.Duration(200+rand.IntN(900)) * time.Millisecond)
	}
	return kills
}

// electionTime is the pause after a kill of one of three servers: without it there would be
// no majority for most of the test.
const electionTime = 10 * time.Second

func role(name string) string { return strings.TrimRight(name, "-0123456789") }

// soaker is one client that never stops.
type soaker struct {
	t     *testing.T
	s     *rig.Split
	n     int
	crowd *crowd
	mu    *sync.Mutex
	lines int // maximum number of lines of a process; default 2800
}

const soakTimeout = 60 * time.Second

// round creates a sandbox, runs a process in it with some readers, and removes it. It
// reports whether the client can continue.
func (c *soaker) round(round int) bool {
	box := c.create()
	if box == "" {
		return false
	}
	n := counter{lines: 300 + rand.IntN(cmp.Or(c.lines, 2800)-299), every: time.Duration(rand.IntN(4)) * time.Millisecond, pad: rand.IntN(2) * rand.IntN(2000)}
	id := c.start(box, fmt.Sprintf("soak-%d-%d", c.n, round), n)
	if id == "" {
		return false
	}
	var mine []*ledger
	c.mu.Lock()
	for i := range 2 {
		by := surfaces[rand.IntN(len(surfaces))]
		mine = append(mine, c.crowd.add(by, id, newReader(by, box, id), c.s.APIs, round+i))
	}
	c.mu.Unlock()
	ok := true
	for _, l := range mine {
		select {
		case <-l.settled:
		case <-time.After(soakTimeout):
			c.t.Errorf("client %d: %s of %s: no end, at line %d of %d", c.n, l.name, id, l.lines.Load(), n.lines)
			return false
		}
		if err := l.check(counterCode); err != nil || l.lines.Load() != uint64(n.lines) {
			c.t.Errorf("client %d: %s: %d of %d lines: %v", c.n, id, l.lines.Load(), n.lines, err)
			ok = false
		}
	}
	ans, err := rig.Try(c.s.APIs, soakTimeout, http.MethodDelete, "/sandboxes/"+box, nil)
	if err != nil || ans.Status != http.StatusNoContent && ans.Status != http.StatusNotFound {
		c.t.Errorf("client %d: delete: %v %v", c.n, ans, err)
		ok = false
	}
	return ok
}

// create creates a sandbox, with retries.
func (c *soaker) create() string {
	var b struct {
		ID string `json:"sandboxID"`
	}
	ans, err := rig.Try(c.s.APIs, soakTimeout, http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": 300})
	if err != nil || ans.Status != http.StatusCreated {
		c.t.Errorf("client %d: create: %v %v", c.n, ans, err)
		return ""
	}
	ans.Decode(c.t, &b)
	return b.ID
}

// start starts a process, with retries under the same key until it runs, or came too late.
func (c *soaker) start(box, key string, n counter) (id string) {
	turn := 0
	var last string
	ok := rig.Poll(soakTimeout, func() bool {
		turn++
		r, ans, err := c.s.APIs[turn%2].OpenStream(http.MethodPost, "/commands", n.command(), "E2b-Sandbox-Id", box, "Idempotency-Key", key)
		if last = fmt.Sprint(ans, err); r == nil {
			return err == nil && !rig.Retryable(ans.Status)
		}
		defer r.Close()
		l, err := r.Next()
		if err != nil || l.Type == "reconnect" {
			last = fmt.Sprint(l, err)
			return false
		}
		last = l.Raw
		if strings.Contains(l.Raw, `"error_code":"deadline"`) { // no host was there in time: it never runs under this key
			key += "-again"
			return false
		}
		id = l.Process
		return true
	})
	if !ok || id == "" {
		c.t.Errorf("client %d: start in %s: %s", c.n, box, last)
	}
	return id
}
