package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// ticks returns a command that prints n numbers, one every few milliseconds.
func ticks(n int) string {
	return fmt.Sprintf("for i in $(seq 1 %d); do echo $i; sleep 0.005; done; exit 3", n)
}

// follower reads every event of a record once, across gateways and broken connections.
type follower struct {
	apis  []*rig.API
	id    string
	lines []*rig.Line
	moved int // number of reconnects
}

func (f *follower) after() uint64 {
	if n := len(f.lines); n > 0 {
		return f.lines[n-1].Seq
	}
	return 0
}

// follow reads until the record ends. It calls each after each event, which may kill
// programs.
func (f *follower) follow(t *testing.T, each func(n int)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for ; time.Now().Before(deadline); f.moved++ {
		a := f.apis[f.moved%len(f.apis)]
		s, ans, err := a.OpenStream("GET", fmt.Sprintf("/v1/processes/%s/events?after=%d", f.id, f.after()), nil)
		if err != nil || s == nil {
			if err == nil && ans.Status < 500 {
				t.Fatalf("after %d: %v", f.after(), ans)
			}
			<-time.After(20 * time.Millisecond)
			continue
		}
		ended := f.read(t, s, each)
		s.Close()
		if ended {
			return
		}
	}
	t.Fatalf("no end after %d events", f.after())
}

func (f *follower) read(t *testing.T, s *rig.Lines, each func(int)) bool {
	t.Helper()
	for {
		l, err := s.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Logf("after %d: %v", f.after(), err)
			}
			return false
		}
		if l.Seq == 0 {
			continue // keepalive, reconnect
		}
		if l.Seq != f.after()+1 {
			t.Fatalf("event %d is followed by %s", f.after(), l.Raw)
		}
		f.lines = append(f.lines, l)
		if l.Type == "end" {
			return true
		}
		if each != nil {
			each(len(f.lines))
		}
	}
}

// want checks that the record has all output of ticks.
func (f *follower) want(t *testing.T, n int) {
	t.Helper()
	if out := rig.Output(f.lines, "stdout"); out != seq(n) {
		t.Errorf("%d bytes of output, want %d", len(out), len(seq(n)))
	}
	if end := rig.End(t, f.lines); end.ExitCode == nil || *end.ExitCode != 3 {
		t.Errorf("end: %s", end.Raw)
	}
	t.Logf("%d events, reconnected %d times", len(f.lines), f.moved)
}

// TestSplit runs a topology of separate processes and kills one of each role under a running
// command.
func TestSplit(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Gateways: 2, Schedulers: 2, Reapers: 2, Hosts: 2})
	a := s.APIs[0]
	box := a.Create(t)
	const n = 300
	start := func(t *testing.T) *follower {
		t.Helper()
		first := a.Commands(t, box.ID, ticks(n), "timeout_ms", 0).Must(t)
		return &follower{apis: s.APIs, id: first.Process}
	}
	for _, tt := range []struct {
		victim string
		pause  time.Duration // before its restart
	}{
		{"gateway-1", 200 * time.Millisecond},
		{s.HostOf(t, a, box.ID), 500 * time.Millisecond},
		{"nats-1", 300 * time.Millisecond},
		{"scheduler-1", 0},
		{"reaper-1", 0},
	} {
		t.Run("kill -9 "+tt.victim, func(t *testing.T) {
			f := start(t)
			p := s.Program(tt.victim)
			killed := false
			f.follow(t, func(i int) {
				if killed || i < 50 {
					return
				}
				killed = true
				p.Kill9()
				<-time.After(tt.pause)
				if err := p.Restart(); err != nil {
					t.Error(err)
				}
			})
			f.want(t, n)
			if !rig.Poll(20*time.Second, func() bool { return a.AliveHosts() == 2 }) {
				t.Error("not all programs restarted")
			}
			// The topology works as before.
			if out := a.StartStream(t, a.Create(t).ID, "echo still").All(t).Stdout(); out != "still\n" {
				t.Errorf("afterwards: %q", out)
			}
		})
	}
	t.Run("SIGTERM gateway-2", func(t *testing.T) {
		f := start(t)
		f.apis = []*rig.API{s.APIs[1], s.APIs[0]}
		p := s.Program("gateway-2")
		ended := false
		f.follow(t, func(i int) {
			if i == 50 {
				go p.Term()
			}
			if f.moved > 0 {
				ended = true
			}
		})
		f.want(t, n)
		if !ended || f.moved != 1 {
			t.Errorf("reconnected %d times", f.moved)
		}
		if err := p.Term(); err != nil {
			t.Error(err)
		}
	})
}

// A node of three is killed under load; no reader or writer loses anything.
func TestSplitCluster(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{NATS: 3, Gateways: 2, Hosts: 1})
	a := s.APIs[0]
	box := a.Create(t)
	const n = 600
	first := a.Commands(t, box.ID, ticks(n), "timeout_ms", 0).Must(t)
	f := &follower{apis: s.APIs, id: first.Process}
	p := s.Program("nats-1")
	f.follow(t, func(i int) {
		switch i {
		case 100:
			p.Kill9()
		case 400:
			if err := p.Restart(); err != nil {
				t.Error(err)
			}
		}
	})
	f.want(t, n)
}

// The processes of a host that does not restart are lost, without an exit code.
func TestSplitHostLost(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Hosts: 2})
	a := s.APIs[0]
	box := a.Create(t)
	first := a.Commands(t, box.ID, "echo up; sleep 300", "timeout_ms", 0).Must(t)
	f := &follower{apis: s.APIs, id: first.Process}
	host := s.HostOf(t, a, box.ID)
	f.follow(t, func(int) {
		if rig.Output(f.lines, "stdout") == "up\n" {
			s.Program(host).Kill9()
		}
	})
	end := rig.End(t, f.lines)
	if end.ExitCode != nil || end.Signal != nil || end.Cause != "host_lost" {
		t.Errorf("end: %s", end.Raw)
	}
	lost := 0
	for _, l := range f.lines {
		if l.Type == "lost" {
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("%d lost in\n%s", lost, raws(f.lines))
	}
	r := a.Dial(t, rig.Message("/process.Process/Connect", map[string]any{}, "E2b-Sandbox-Id", box.ID, "X-Process-Id", first.Process))
	if r.Status != http.StatusOK {
		t.Fatalf("Connect: %d %s", r.Status, r.Rest(t))
	}
	run := r.All(t)
	if run.End != nil || run.Error == nil || run.Error.Code != "data_loss" || run.Stdout() != "up\n" {
		t.Errorf("Connect: %+v %s", run.End, run.Last.Payload)
	}
	// When it restarts after all, it finds that it was declared gone, and removes its sandboxes.
	if err := s.Program(host).Restart(); err != nil {
		t.Error(err)
	}
	if !rig.Poll(20*time.Second, func() bool { return a.AliveHosts() == 2 }) {
		t.Error("the host did not restart")
	}
	left := func() []os.DirEntry {
		all, _ := os.ReadDir(filepath.Join(s.Dir, host, "sandboxes"))
		return all
	}
	if !rig.Poll(10*time.Second, func() bool { return len(left()) == 0 }) {
		t.Errorf("its sandboxes exist: %v", left())
	}
}
