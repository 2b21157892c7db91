package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

// previous is the revision that a long run upgrades from.
const previous = "HEAD~1"

// Each program of an installation is replaced in the order of docs/upgrade.md, from the version of
// MILLRACE_E2E_OLD to this one, under clients that resume: they receive each byte once and the true
// end, and no response that they cannot resume from. A long run goes back again.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	long := os.Getenv(EnvSoak) != ""
	from := ""
	if long {
		from = previous
	}
	old := rig.Old(t, from)
	s := newTopology(t, rig.Topology{Binary: old, NATS: 3, Gateways: 2, Schedulers: 2, Reapers: 2, Hosts: 2})
	c := newCrowd(t)
	all := upgradeLoad(t, s, c)
	talks := newTalkReader(t, s)
	c.add("WebSocket", talks.c.ID, talks, s.APIs, 0)
	short := shortRuns(t, s, 2)

	upgradeAll(t, s, c, rig.Binary(t))
	if long {
		upgradeAll(t, s, c, old)
	}
	for _, p := range all {
		stopCounter(t, s.APIs, p.box, p.pid, p.stream)
	}
	talks.stop(t, s)
	ran := short()
	c.finish(t, counterCode)
	noneLost(t, s)
	var lines, comes, cuts uint64
	var stall time.Duration
	for _, l := range c.ledgers {
		lines, comes, cuts = lines+l.lines.Load(), comes+l.reconnects.Load(), cuts+l.cuts.Load()
		stall = max(stall, l.longest())
		for _, why := range l.why {
			if !errors.Is(why, syscall.ECONNREFUSED) && !errors.Is(why, syscall.ECONNRESET) { // it does not accept connections while it restarts
				t.Errorf("%s: %v", l.name, why)
			}
		}
	}
	t.Logf("%d readers, %d lines, reconnected %d times, %d of them without being asked to; %d short processes; longest silence %v, longest pause of a process %v",
		len(c.ledgers), lines, comes, cuts, ran, stall.Round(time.Millisecond), c.paused())
}

// upgradeLoad starts counters in sandboxes of both hosts, with readers of every surface.
func upgradeLoad(t *testing.T, s *rig.Split, c *crowd) (all []running) {
	t.Helper()
	hosts := map[string]bool{}
	for i := 0; len(hosts) < 2; i++ {
		a := s.APIs[i%2]
		box := a.Create(t).ID
		host := s.HostOf(t, a, box)
		if hosts[host] {
			continue
		}
		hosts[host] = true
		for k := range 2 {
			one, spec := running{box: box, stream: "stdin"}, counter{every: 10 * time.Millisecond}.spec()
			if k == 1 {
				one.stream, spec = "pty", counter{every: 10 * time.Millisecond}.terminal()
			}
			one.id, one.pid = launch(t, a, box, spec)
			by := surfaces
			if k == 1 {
				by = []string{"events", "connect"}
			}
			c.watch(s.APIs, box, one.id, i+k, by...)
			all = append(all, one)
		}
	}
	return all
}

// upgradeAll replaces one program after another in the order of docs/upgrade.md, and checks that every
// reader continues.
func upgradeAll(t *testing.T, s *rig.Split, c *crowd, next string) {
	t.Helper()
	const further = 30 // lines of each reader between two programs
	for _, role := range []string{"nats", "scheduler", "reaper", "host", "gateway"} {
		for _, name := range s.Names() {
			if !strings.HasPrefix(name, role+"-") {
				continue
			}
			c.progress(t, further)
			c.stalled()
			began := time.Now()
			must(t, s.Upgrade(name, next))
			took := time.Since(began)
			switch role {
			case "nats":
				copiesComplete(t, s)
			case "host":
				must(t, s.Settled(2))
			}
			c.progress(t, 1)
			t.Logf("%s: stopped and restarted in %v, ready after %v, longest silence of a reader %v", name, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), c.stalled().Round(time.Millisecond))
		}
	}
	c.progress(t, further)
}

// copiesComplete waits until doctor finds that every NATS server and the copies on it are complete. What
// it finds of services, and streams that only the next version has, are no reason to wait.
func copiesComplete(t *testing.T, s *rig.Split) {
	t.Helper()
	for url := range strings.SplitSeq(s.URL, ",") { // doctor waits longer for what does not report
		if !rig.Poll(time.Minute, func() bool {
			nc, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
			return err == nil && nc.Close() == nil
		}) {
			t.Fatalf("%s does not accept connections", url)
		}
	}
	var out string
	if !rig.Poll(time.Minute, func() bool {
		out, _ = millrace(t, nil, "doctor", "--cluster", "--nats", s.URL)
		return strings.Count(out, "ok    NATS server nats-") == s.Servers() && !slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool {
			return strings.HasPrefix(l, "FAIL  stream ") && !strings.HasSuffix(l, ": does not exist")
		})
	}) {
		t.Fatalf("not complete:\n%s", out)
	}
}

// noneLost fails if a record has a gap, or a host or a process was lost.
func noneLost(t *testing.T, s *rig.Split) {
	t.Helper()
	for _, a := range s.APIs {
		m := a.Metrics(t)
		for _, name := range []string{"millrace_processes_lost_total", "millrace_record_gaps_total", `millrace_sandboxes{phase="lost"}`, `millrace_hosts{state="gone"}`} {
			if m[name] != 0 {
				t.Errorf("%s: %s is %v", a.URL, name, m[name])
			}
		}
	}
}

// shortRuns has clients that create sandboxes, run processes in them, and remove them, until the
// returned function is called. That returns the number of processes.
func shortRuns(t *testing.T, s *rig.Split, clients int) (stop func() uint64) {
	t.Helper()
	over := make(chan struct{})
	var wg sync.WaitGroup
	var ran atomic.Uint64
	c := newCrowd(t)
	var mu sync.Mutex
	for i := range clients {
		wg.Go(func() {
			one := soaker{t: t, s: s, n: i, crowd: c, mu: &mu, lines: 300}
			for round := 0; ; round++ {
				select {
				case <-over:
					return
				default:
				}
				if !one.round(round) {
					return
				}
				ran.Add(1)
			}
		})
	}
	var once sync.Once
	end := func() { once.Do(func() { close(over) }); wg.Wait() }
	t.Cleanup(end)
	return func() uint64 { end(); return ran.Load() }
}

// talkReader reads a counter in a session over a WebSocket connection.
type talkReader struct {
	c  conversation
	at string // position behind what was received
}

// newTalkReader starts a counter in a new session.
func newTalkReader(t *testing.T, s *rig.Split) *talkReader {
	t.Helper()
	a := s.APIs[0]
	r := &talkReader{c: converse(t, a, "/v1/sessions", conversationBody, http.StatusCreated)}
	k := talkTo(t, a, &r.c, "?after=")
	defer k.ws.Close()
	if k.run("mkfifo /tmp/stop"); k.at == "" {
		must(t, k.ws.WriteMessage(websocket.TextMessage, []byte("{}"))) // its answer is followed by a position
		_, err := k.read()
		must(t, err)
	}
	for k.at == "" {
		_, err := k.read()
		must(t, err)
	}
	r.at = k.at
	k.send(fmt.Sprintf("exec 3<>/tmp/stop; perl -e '%s' 0 0.01 0 <&3", counterScript))
	_, err := k.read()
	must(t, err)
	return r
}

// stop ends the counter.
func (r *talkReader) stop(t *testing.T, s *rig.Split) {
	t.Helper()
	lines := s.APIs[0].Commands(t, sandboxOf(&r.c), "echo q >/tmp/stop").All(t)
	if end := rig.End(t, lines); end.ExitCode == nil || *end.ExitCode != 0 {
		t.Errorf("stop the counter: %s", end.Raw)
	}
}

func (r *talkReader) read(ctx context.Context, a *rig.API, l *ledger) error {
	url := "ws" + strings.TrimPrefix(a.URL, "http") + "/v1/sessions/" + r.c.ID + "/ws?after=" + r.at
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, url, http.Header{"Authorization": {"Bearer " + r.c.JWT}})
	if resp != nil {
		defer resp.Body.Close()
		if err != nil && !rig.Retryable(resp.StatusCode) {
			return wrong("response %d", resp.StatusCode)
		}
	}
	if err != nil {
		return err
	}
	defer ws.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	var pending []byte // output behind the last position: it arrives again after a reconnect
	for {
		_, raw, err := ws.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed) && closed.Code == websocket.CloseGoingAway && closed.Text == "server shutting down":
			return errReconnect
		case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
			return wrong("%v", err)
		case err != nil:
			return err
		}
		var f frameOf
		if err := json.Unmarshal(raw, &f); err != nil {
			return wrong("%q: %v", raw, err)
		}
		switch {
		case f.Event == "position":
			r.at = f.After
			err, pending = l.output(pending), pending[:0]
		case f.Type == "stdout":
			pending = append(pending, f.Data...)
		case f.Type == "exit":
			return errors.Join(l.output(pending), l.ended(f.ExitCode, f.Type))
		}
		if err != nil {
			return err
		}
	}
}
