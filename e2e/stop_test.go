package e2e

import (
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// Every role stops within its bound, also while NATS is paused or down, and while clients
// stream and wait.
func TestRolesStopInTimeWithoutNATS(t *testing.T) {
	for _, tt := range []struct {
		name string
		away func(*rig.Program)
	}{
		{"NATS is stopped", (*rig.Program).Stop},
		{"NATS is down", (*rig.Program).Kill9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for the bounds
			s := rig.NewSplit(t, rig.Topology{})
			api := s.APIs[0]
			box := api.Create(t)
			api.StartStream(t, box.ID, "while :; do echo x; sleep 0.05; done")
			nats := s.Program("nats-1")
			tt.away(nats)
			defer restart(t, s) // leftovers are checked
			var waiting sync.WaitGroup
			defer waiting.Wait()
			for range 4 {
				waiting.Go(func() {
					api.Call(http.MethodPost, "/sandboxes", map[string]any{"templateID": "base"})
				})
			}
			var roles sync.WaitGroup
			for name, bound := range map[string]time.Duration{
				"gateway-1": 15 * time.Second, "scheduler-1": 5 * time.Second, "reaper-1": 5 * time.Second, "host-1": 25 * time.Second,
			} {
				p := s.Program(name)
				roles.Go(func() {
					took, err := stop(p, 3*bound)
					t.Logf("%s stopped in %v", name, took)
					if took > bound+loadDelay || err != nil {
						t.Errorf("%s took %v to stop, want %v at most: %v\n%s", name, took, bound, err, p.Log())
					}
				})
			}
			roles.Wait()
		})
	}
}

// loadDelay is how much longer than its bound a program may take on a loaded machine.
const loadDelay = 5 * time.Second

// stop sends SIGTERM, waits for the end at most most, and returns how long it took.
func stop(p *rig.Program, most time.Duration) (time.Duration, error) {
	began := time.Now()
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		return 0, err
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-p.Done():
		return time.Since(began), nil
	case <-t.C:
		return most, os.ErrDeadlineExceeded
	}
}

// A start for a host that is down is rejected, and the next retry with the same key runs it
// once.
func TestOutageDoesNotUseUpIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{})
	api, host, reaper := s.APIs[0], s.Program("host-1"), s.Program("reaper-1")
	box := api.Create(t)
	body := map[string]any{"cmd": "echo ran; echo x >> /tmp/runs"}
	start := func() (rig.Answer, error) {
		return api.Call(http.MethodPost, "/commands?sandbox="+box.ID, body, "Idempotency-Key", "k1")
	}
	reaper.Stop() // it would end the sandbox after the host's lease
	host.Stop()
	refused, err := start()
	t.Logf("while the host was stopped: %v, %v", refused, err)
	host.Cont()
	if !rig.Poll(60*time.Second, func() bool { return api.AliveHosts() == 1 }) {
		t.Fatal("the host does not restart")
	}
	reaper.Cont()
	var got rig.Answer
	if !rig.Poll(30*time.Second, func() bool {
		got, err = start()
		return err == nil && got.Status == http.StatusOK
	}) {
		t.Fatalf("retry: %v, %v", got, err)
	}
	wantOutput(t, got, "ran\\n")
	for range 3 {
		again, err := start()
		if err != nil || again.Header.Get("X-Process-Id") != got.Header.Get("X-Process-Id") {
			t.Errorf("another retry is process %s, want %s: %v", again.Header.Get("X-Process-Id"), got.Header.Get("X-Process-Id"), err)
		}
	}
	count, err := api.Call(http.MethodPost, "/commands?sandbox="+box.ID, map[string]any{"cmd": "wc -l < /tmp/runs"})
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, count, "1\\n")
}

// wantOutput fails the test unless the response has a line of standard output.
func wantOutput(t *testing.T, got rig.Answer, quoted string) {
	t.Helper()
	if want := `"type":"stdout","data":"` + quoted + `"`; !strings.Contains(string(got.Body), want) {
		t.Errorf("%v, want %s", got, want)
	}
}

// restart restarts programs that have ended.
func restart(t *testing.T, s *rig.Split) {
	t.Helper()
	for _, name := range []string{"nats-1", "gateway-1", "scheduler-1", "reaper-1", "host-1"} {
		p := s.Program(name)
		p.Cont()
		if p.Running() {
			continue
		}
		if err := p.Restart(); err != nil {
			t.Error(err)
		}
	}
	if err := s.APIs[0].AwaitReady(time.Minute, s.Program("gateway-1")); err != nil {
		t.Error(err)
	}
}
