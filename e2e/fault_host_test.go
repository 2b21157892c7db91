package e2e_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// maxPause is how long an undisturbed process may pause on a machine that is busy with this
// test.
const maxPause = 1500 * time.Millisecond

// checkPauses fails if a process paused, as it does when its pipe is full.
func checkPauses(t *testing.T, c *crowd) {
	t.Helper()
	if d := c.paused(); d > maxPause {
		t.Errorf("a process paused for %v", d)
	}
}

// A host's daemon is killed while a process writes, and restarts at once or later. Covers
// T-52.
func TestFaultHostKilled(t *testing.T) {
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, counter{every: 2 * time.Millisecond}.spec())
	c := newCrowd(t)
	c.watch(s.APIs, box.ID, id, 0, surfaces...)
	var atOnce, later []time.Duration
	for i := range 16 {
		c.progress(t, 20)
		c.stalled()
		s.Program("host-1").Kill9()
		if i%4 == 3 {
			<-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond)
			later = append(later, 0)
		}
		must(t, s.RestartProgram("host-1"))
		c.progress(t, 20)
		if i%4 == 3 {
			later[len(later)-1] = c.stalled()
		} else {
			atOnce = append(atOnce, c.stalled())
		}
	}
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	c.finish(t, counterCode)
	checkPauses(t, c)
	t.Logf("hostd killed and restarted at once: silence %s; up to 1 s later: %s; the process itself paused at most %v",
		percentiles(atOnce), percentiles(later), c.paused())
	for _, l := range c.ledgers {
		if n := l.reconnects.Load(); n > 0 {
			t.Errorf("%s: had to reconnect %d times", l.name, n)
		}
	}
}

// Fifty processes in five sandboxes, some on terminals and some writing fast, lose no byte
// across restarts of their host. Covers T-19 and T-52.
func TestFaultHostKilledManyProcesses(t *testing.T) {
	s := newTopology(t, rig.Topology{})
	a := s.APIs[0]
	c := newCrowd(t)
	type one struct {
		box, stream string
		pid         uint32
	}
	var all []one
	for i := range 50 {
		if i%10 == 0 {
			all = append(all, one{box: a.Create(t).ID})
		} else {
			all = append(all, one{box: all[i-1].box})
		}
		p, n := &all[i], counter{every: 20 * time.Millisecond}
		if i%5 == 4 {
			n.pad = 4000
		}
		spec := n.spec()
		if p.stream = "stdin"; i%5 == 1 {
			p.stream, spec = "pty", n.terminal()
		}
		var id string
		id, p.pid = launch(t, a, p.box, spec)
		c.watch(s.APIs, p.box, id, 0, "events")
	}
	var stalls []time.Duration
	for range 8 {
		c.progress(t, 10)
		c.stalled()
		_, err := s.Crash("host-1")
		must(t, err)
		c.progress(t, 10)
		stalls = append(stalls, c.stalled())
	}
	for _, p := range all {
		stopCounter(t, s.APIs, p.box, p.pid, p.stream)
	}
	c.finish(t, counterCode)
	checkPauses(t, c)
	t.Logf("hostd with %d processes killed: silence %s; the processes themselves paused at most %v", len(all), percentiles(stalls), c.paused())
}

// echoSpec echoes stdin, on pipes or a terminal, and exits as a counter does.
func echoSpec(terminal bool) map[string]any {
	const script = `$|=1; while(<STDIN>){ s/\r//; last if /^q/; print } exit 7`
	if terminal {
		return map[string]any{"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-c", `stty -echo -onlcr; echo 0 0; exec /usr/bin/perl -e '` + script + `'`}}, "pty": pty(80, 24)}
	}
	return map[string]any{"process": map[string]any{"cmd": "/usr/bin/perl", "args": []string{"-e", script}}, "stdin": true}
}

// Input is sent while the daemon is killed repeatedly: each byte reaches the process once,
// although the client repeats no call. Covers T-47.
func TestFaultHostKilledUnderInput(t *testing.T) {
	s := newTopology(t, rig.Topology{})
	box := s.APIs[0].Create(t)
	for _, stream := range []string{"stdin", "pty"} {
		t.Run(stream, func(t *testing.T) { inputUnderCrashes(t, s, box.ID, stream) })
	}
}

func inputUnderCrashes(t *testing.T, s *rig.Split, box, stream string) {
	a := s.APIs[0]
	id, pid := launch(t, a, box, echoSpec(stream == "pty"))
	if stream == "pty" { // until its first output, the terminal echoes
		live := a.Events(t, id, "follow=1")
		live.Until(t, func(l *rig.Line) bool { return l.Type == "pty" })
		live.Close()
	}
	stop, sent := make(chan struct{}), make(chan int)
	go func() { // sends numbered lines, one call after the other
		n := 0
		defer func() { sent <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			in := map[string]any{stream: base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d 1\n", n+1))}
			ans, err := a.Call(http.MethodPost, "/process.Process/SendInput", byPID(pid, "input", in), "E2b-Sandbox-Id", box)
			if err != nil || ans.Status != http.StatusOK {
				t.Errorf("line %d: %v %v", n+1, ans, err)
				return
			}
			n++
		}
	}()
	for range 10 {
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
		_, err := s.Crash("host-1")
		must(t, err)
		must(t, s.Settled(1))
	}
	close(stop)
	n := <-sent
	stopCounter(t, s.APIs, box, pid, stream)
	lines := a.Events(t, id, "").All(t)
	end := rig.End(t, lines)
	var want []byte
	if stream == "pty" {
		want = append(want, "0 0\n"...)
	}
	for i := range n {
		want = fmt.Appendf(want, "%d 1\n", i+1)
	}
	name := stream
	if name == "stdin" {
		name = "stdout"
	}
	if got := rig.Output(lines, name); got != string(want) || end.ExitCode == nil || *end.ExitCode != counterCode {
		t.Errorf("%d bytes ...%q, want %d ...%q; end %s", len(got), tail(got), len(want), tail(string(want)), end.Raw)
	}
	t.Logf("%s: %d lines sent", stream, n)
}

// Input is retried with its key while gateways, the host and NATS are killed: the process
// receives each byte once, in order. Covers T-47.
func TestFaultInputRetried(t *testing.T) {
	s := newTopology(t, rig.Topology{Gateways: 2})
	box := s.APIs[0].Create(t)
	id, pid := launch(t, s.APIs[0], box.ID, echoSpec(false))
	stop, sent := make(chan struct{}), make(chan int)
	tries := 0
	go func() {
		n := 0
		defer func() { sent <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			in := map[string]any{"stdin": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d 1\n", n+1))}
			headers := []string{"E2b-Sandbox-Id", box.ID, "Idempotency-Key", fmt.Sprintf("line-%d", n+1)}
			ok := rig.Poll(progressTimeout, func() bool {
				tries++
				ans, err := s.APIs[tries%2].Call(http.MethodPost, "/process.Process/SendInput", byPID(pid, "input", in), headers...)
				if err == nil && ans.Status != http.StatusOK && !rig.Retryable(ans.Status) {
					t.Errorf("line %d: %v", n+1, ans)
				}
				return err == nil && ans.Status == http.StatusOK
			})
			if n++; !ok {
				t.Errorf("line %d was not taken", n)
				return
			}
		}
	}()
	for i := range 16 {
		<-time.After(time.Duration(rand.IntN(150)) * time.Millisecond)
		_, err := s.Crash([]string{"gateway-1", "host-1", "gateway-2", "nats-1"}[i%4])
		must(t, err)
	}
	close(stop)
	n := <-sent
	stopCounter(t, s.APIs, box.ID, pid, "stdin")
	var want []byte
	for i := range n {
		want = fmt.Appendf(want, "%d 1\n", i+1)
	}
	lines := s.APIs[0].Events(t, id, "").All(t)
	if got := rig.Output(lines, "stdout"); got != string(want) {
		t.Errorf("%d bytes ...%q, want %d ...%q", len(got), tail(got), len(want), tail(string(want)))
	}
	t.Logf("%d lines in %d tries", n, tries)
}

func tail(s string) string { return s[max(0, len(s)-60):] }
