package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// change is an event of a sandbox's record.
type change struct {
	Type  string    `json:"type"`
	Time  time.Time `json:"time"`
	Cause string    `json:"cause"`
}

// history returns a sandbox's record.
func history(t *testing.T, a *rig.API, sandbox string) []change {
	t.Helper()
	ans := a.Want(t, http.StatusOK, http.MethodGet, "/v1/events?follow=0&kind=sandbox&sandbox="+sandbox, nil)
	var out []change
	for l := range strings.Lines(string(ans.Body)) {
		var c change
		if err := json.Unmarshal([]byte(l), &c); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		if c.Type != "keepalive" {
			out = append(out, c)
		}
	}
	return out
}

// endedOnce fails unless a sandbox's record has one stop and one end, in order.
func endedOnce(t *testing.T, sandbox string, all []change) {
	t.Helper()
	var types []string
	for _, c := range all {
		if c.Type != "deadline_set" {
			types = append(types, c.Type)
		}
	}
	if got := strings.Join(types, " "); got != "requested placed running stopping destroyed" {
		t.Errorf("%s: %s", sandbox, got)
	}
}

// late is the maximum delay of a sandbox's end after its deadline.
const late = 10 * time.Second

// Reapers are killed all the time while sandboxes with attached readers reach their
// deadlines: each ends once, in time, with all earlier output. Covers T-55, T-56 and T-70.
func TestFaultReaperKilled(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, Reapers: 2})
	c := newCrowd(t)
	boxes := make([]string, 16)
	for i := range boxes {
		boxes[i] = s.APIs[i%2].Create(t, "timeout", 2+i%4).ID
		id, _ := launch(t, s.APIs[i%2], boxes[i], counter{every: 10 * time.Millisecond}.spec())
		c.watch(s.APIs, boxes[i], id, i, "events", []string{"connect", "sse", "commands", "durable"}[i%4])
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, l := range c.ledgers {
			<-l.settled
		}
	}()
	kills, begins := 0, startTime(t, s, "reaper-1", "reaper started")
	for over := false; !over; kills++ {
		select {
		case <-done:
			over = true
		case <-time.After(rand.N(3 * begins)):
			for _, v := range [][]string{{"reaper-1"}, {"reaper-2"}, {"reaper-1", "reaper-2"}}[kills%3] {
				s.Program(v).Kill9()
				must(t, s.RestartProgram(v))
			}
		}
	}
	var latest time.Duration
	for i, box := range boxes {
		all := history(t, s.APIs[0], box)
		endedOnce(t, box, all)
		for _, e := range all {
			if e.Type != "stopping" {
				continue
			}
			after := e.Time.Sub(all[0].Time) - time.Duration(2+i%4)*time.Second
			latest = max(latest, after)
			// The request is slightly older than its event.
			if e.Cause != "timeout" || after < -50*time.Millisecond || after > late {
				t.Errorf("%s: stopped %v after its deadline: %s", box, after, e.Cause)
			}
		}
	}
	for _, l := range c.ledgers {
		if l.wrong != nil || l.end == nil || l.end != nil && l.end.code != nil && *l.end.code >= 0 {
			t.Errorf("%s: end %s, %v", l.name, l.end, l.wrong)
		}
	}
	t.Logf("reapers killed %d times, started in about %v each: deadlines kept within %v", kills, begins, latest)
}

// startTime kills and restarts a program and returns how long it takes to start: a service
// that is always killed sooner does nothing.
func startTime(t *testing.T, s *rig.Split, name, text string) time.Duration {
	t.Helper()
	starts := func() int { return strings.Count(s.Program(name).Log(), text) }
	before, began := starts(), time.Now()
	if _, err := s.Crash(name); err != nil {
		t.Fatal(err)
	}
	if !rig.Poll(late, func() bool { return starts() > before }) {
		t.Fatalf("%s: log without %q", name, text)
	}
	return time.Since(began)
}

// A deadline is moved at the moment when it passes: the response reports correctly whether the
// sandbox still runs. Covers T-71.
func TestFaultDeadlineMovedAsItPasses(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, Reapers: 2})
	var wg sync.WaitGroup
	var moved, ended int
	var mu sync.Mutex
	for i := range 30 {
		wg.Go(func() {
			a := s.APIs[i%2]
			box := a.Create(t)
			a.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+box.ID+"/timeout", map[string]any{"timeout": 1})
			<-time.After(500*time.Millisecond + time.Duration(rand.IntN(600))*time.Millisecond)
			ans := a.Do(t, http.MethodPost, "/sandboxes/"+box.ID+"/timeout", map[string]any{"timeout": 60})
			<-time.After(1500 * time.Millisecond)
			runs := s.APIs[(i+1)%2].Do(t, http.MethodGet, "/sandboxes/"+box.ID, nil).Status == http.StatusOK
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ans.Status == http.StatusNoContent && runs:
				moved++
			case (ans.Status == http.StatusNotFound || ans.Status == http.StatusConflict) && !runs:
				ended++
			default:
				t.Errorf("%v, and the sandbox runs: %v", ans, runs)
			}
		})
	}
	wg.Wait()
	t.Logf("%d were moved in time, %d were not", moved, ended)
}

// A sandbox is deleted twice while commands start in it: each command ends or is rejected
// with a reason, and nothing remains. Covers T-73.
func TestFaultDeleteRacesExec(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	var ran, refused int
	var mu sync.Mutex
	for round := range 15 {
		box := s.APIs[0].Create(t)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				<-time.After(time.Duration(rand.IntN(12_000)) * time.Microsecond)
				ok := execOrRefused(t, s.APIs[i%2], box.ID)
				mu.Lock()
				defer mu.Unlock()
				if ok {
					ran++
				} else {
					refused++
				}
			})
		}
		var gone [2]int
		for i := range gone {
			wg.Go(func() {
				<-time.After(time.Duration(rand.IntN(12_000)) * time.Microsecond)
				gone[i] = s.APIs[i].Do(t, http.MethodDelete, "/sandboxes/"+box.ID, nil).Status
			})
		}
		wg.Wait()
		for _, g := range gone {
			if g != http.StatusNoContent && g != http.StatusNotFound {
				t.Errorf("round %d: deleted: %v", round, gone)
			}
		}
		endedOnce(t, box.ID, history(t, s.APIs[0], box.ID))
	}
	noneIntermediate(t, s.APIs[0], 0)
	if counts := countsOf(t, s.APIs[1]); counts.active != 0 {
		t.Errorf("counts: %+v", counts)
	}
	t.Logf("%d commands ran, %d were rejected", ran, refused)
}

// execOrRefused runs a command; it reports whether the command has a record.
func execOrRefused(t *testing.T, a *rig.API, sandbox string) bool {
	r, ans, err := a.OpenStream(http.MethodPost, "/commands", map[string]any{"cmd": "echo in; sleep 20; exit 7"}, "E2b-Sandbox-Id", sandbox)
	if err != nil {
		t.Error(err)
		return false
	}
	if r == nil {
		if ans.Status < 400 || ans.Status == http.StatusInternalServerError || !strings.Contains(string(ans.Body), "message") {
			t.Errorf("start: %v", ans)
		}
		return false
	}
	defer r.Close()
	var last *rig.Line
	for {
		l, err := r.Next()
		if err != nil {
			break
		}
		last = l
	}
	if last == nil || last.Type != "end" || last.ExitCode != nil && *last.ExitCode >= 0 {
		t.Errorf("the last line of a command whose sandbox was deleted: %+v", last)
	}
	return true
}

// Of a hundred creates with a capacity of ten, ten succeed, also after all programs that
// count them were killed. Covers T-74, T-75 and T-81.
func TestFaultCapacity(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, Schedulers: 2, Hosts: 2, HostArgs: []string{"--capacity", "5"}, GatewayArgs: []string{"--queue-timeout", "1s"}})
	for round := range 3 {
		began := time.Now()
		all := creates(t, s.APIs, 100, 300)
		took := time.Since(began)
		made, full := 0, 0
		for _, c := range all {
			switch {
			case c.status == http.StatusCreated:
				made++
			case c.status == http.StatusServiceUnavailable && c.code == "exhausted":
				full++
			default:
				t.Errorf("round %d: %+v", round, c)
			}
		}
		if made != 10 || full != 90 {
			t.Errorf("round %d: %d created, %d rejected", round, made, full)
		}
		t.Logf("100 creates in %v", took)
		if round == 0 { // kill all programs while they run
			crashAll(t, s)
		}
		if c := create(t, s.APIs[1], 300); c.status != http.StatusServiceUnavailable {
			t.Errorf("the eleventh: %+v", c)
		}
		destroy(t, s.APIs, all)
		noneIntermediate(t, s.APIs[0], 0)
		if round == 1 { // and while none runs
			crashAll(t, s)
		}
	}
}

// crashAll kills every program at once and restarts all.
func crashAll(t *testing.T, s *rig.Split) {
	t.Helper()
	hosts := 0
	for _, name := range s.Names() {
		s.Program(name).Kill9()
		if strings.HasPrefix(name, "host-") {
			hosts++
		}
	}
	must(t, s.RestartAll())
	must(t, s.Settled(hosts))
}

// The counts are computed from the record, so kills do not change them. Covers C-042.
func TestFaultCountsSurvive(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	a := s.APIs[0]
	box := a.Create(t)
	want := counts{started: 22, ok: 5, err: 7, killed: 4, active: 6}
	for range int(want.ok) {
		a.StartStream(t, box.ID, "true").All(t)
	}
	for range int(want.err) {
		a.StartStream(t, box.ID, "exit 3").All(t)
	}
	sleeper := func() uint32 { return a.StartStream(t, box.ID, "exec sleep 300").Started(t).Event.Start.PID }
	for range int(want.killed) {
		pid := sleeper()
		a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"))
	}
	var active []uint32
	for range int(want.active) {
		active = append(active, sleeper())
	}
	check := func(when string) {
		t.Helper()
		for i, a := range s.APIs {
			var got counts
			if !rig.Poll(5*time.Second, func() bool { got = countsOf(t, a); return got == want }) {
				t.Errorf("%s, gateway %d: %+v, want %+v", when, i+1, got, want)
			}
		}
	}
	check("before")
	for _, name := range s.Names() {
		_, err := s.Crash(name)
		must(t, err)
	}
	check("after each was killed")
	crashAll(t, s)
	check("after all were killed")
	for _, pid := range active[:3] {
		ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGTERM"))
		if ans.Status != http.StatusOK {
			t.Errorf("SendSignal: %v", ans)
		}
	}
	want.killed, want.active = want.killed+3, 3
	check("after signals")
	a.Kill(t, box.ID)
	for i, a := range s.APIs {
		if got := countsOf(t, a); got.active != 0 || got.started != want.started {
			t.Errorf("after the sandbox, gateway %d: %+v", i+1, got)
		}
	}
	crashAll(t, s)
	if got := countsOf(t, s.APIs[1]); got.active != 0 || got.started != want.started {
		t.Errorf("after the end of all: %+v", got)
	}
}

// Five hundred kills at random moments around the exit: each command is counted once.
// Covers C-026.
func TestFaultKillRacesExit(t *testing.T) {
	s := newTopology(t, rig.Topology{})
	a := s.APIs[0]
	box := a.Create(t)
	const kills, workers = 500, 10
	before := countsOf(t, a)
	var wg sync.WaitGroup
	var mu sync.Mutex
	tally := map[string]int{}
	for w := range workers {
		wg.Go(func() {
			for i := range kills / workers {
				r := a.StartSpec(t, box.ID, spec("/usr/bin/perl", []string{"-e", fmt.Sprintf("select(undef,undef,undef,0.003*rand()); print qq(last\n); exit %d", (w+i)%2)}))
				m := r.Started(t)
				<-time.After(time.Duration(rand.IntN(6_000)) * time.Microsecond)
				ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(m.Event.Start.PID, "signal", "SIGNAL_SIGKILL"))
				rest(t, r)
				outcome := outcomeOf(t, a, processOf(t, m), ans.Status)
				mu.Lock()
				tally[outcome]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	got := countsOf(t, a).since(before)
	if got.started != kills || got.active != 0 || got.ok+got.err+got.killed != kills {
		t.Errorf("counts: %+v", got)
	}
	if int(got.killed) != tally["killed"] || int(got.ok) != tally["ok"] || int(got.err) != tally["error"] {
		t.Errorf("counts %+v, the records have %v", got, tally)
	}
	t.Logf("%+v", got)
}

// outcomeOf returns how a record's process is counted, and checks that the record has a
// signal whose call succeeded.
func outcomeOf(t *testing.T, a *rig.API, id string, signaled int) string {
	t.Helper()
	killed := false
	lines := a.Events(t, id, "").All(t)
	for _, l := range lines {
		killed = killed || l.Type == "signaled"
	}
	end := rig.End(t, lines)
	switch {
	case signaled == http.StatusOK && !killed || signaled != http.StatusOK && signaled != http.StatusNotFound:
		t.Errorf("the signal's response was %d:\n%s", signaled, raws(lines))
	case killed:
		return "killed"
	case end.ExitCode != nil && *end.ExitCode == 0:
		return "ok"
	}
	return "error"
}
