package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// leaseTime exceeds the duration of a host's lease and the reaper's reaction.
const leaseTime = 25 * time.Second

// lostStage has two hosts, one of which runs a process with readers on every surface.
type lostStage struct {
	*rig.Split
	box, id string
	marker  string // in the arguments of the process or of its guest kernel
	crowd   *crowd
	began   time.Time
}

func newLostStage(t *testing.T) *lostStage {
	t.Helper()
	s := &lostStage{Split: newTopology(t, rig.Topology{Gateways: 2, Hosts: 2})}
	for s.box == "" {
		box := s.APIs[0].Create(t)
		if s.HostOf(t, s.APIs[0], box.ID) == "host-1" {
			s.box = box.ID
		}
	}
	s.marker = fmt.Sprintf("mark%d", time.Now().UnixNano())
	spec := counter{every: 20 * time.Millisecond}.spec()
	process, _ := spec["process"].(map[string]any)
	process["args"] = append(process["args"].([]string), s.marker)
	s.id, _ = launch(t, s.APIs[0], s.box, spec)
	if kernelOfItsOwn(t) {
		s.marker = s.box // the process is not visible on the machine
	}
	s.crowd = newCrowd(t)
	for _, by := range []string{"events", "sse"} {
		s.crowd.add(by, s.id, &eventsReader{id: s.id, sse: by == "sse", lost: true}, s.APIs, 0)
	}
	s.crowd.add("commands", s.id, &commandsReader{id: s.id}, s.APIs, 1)
	s.crowd.add("durable", s.id, &durableReader{id: s.id, events: eventsReader{id: s.id, lost: true}}, s.APIs, 1)
	s.crowd.progress(t, 20)
	s.began = time.Now()
	return s
}

// running reports whether the process or its guest kernel runs on this machine.
func (s *lostStage) running() bool {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false
	}
	for _, f := range all {
		if raw, err := os.ReadFile(f); err == nil && bytes.Contains(raw, []byte(s.marker)) {
			return true
		}
	}
	return false
}

// lost waits for the end with an unknown exit status on every surface, and returns the
// record.
func (s *lostStage) lost(t *testing.T) string {
	t.Helper()
	for _, l := range s.crowd.ledgers {
		select {
		case <-l.settled:
		case <-time.After(leaseTime):
			t.Fatalf("%s: no end after %v", l.name, time.Since(s.began))
		}
		l.mu.Lock()
		if l.wrong != nil || l.end == nil || l.end.code != nil || l.end.cause != "host_lost" {
			t.Errorf("%s: end %s (%v)", l.name, l.end, l.wrong)
		}
		l.mu.Unlock()
	}
	t.Logf("a silent host's process was lost at most %v after its last heartbeat", time.Since(s.began).Round(time.Millisecond))
	s.checkConnect(t)
	s.checkSandboxGone(t)
	return s.record(t)
}

// checkConnect checks Connect, where an end without an exit code is an error.
func (s *lostStage) checkConnect(t *testing.T) {
	t.Helper()
	run := s.APIs[1].Dial(t, rig.Message("/process.Process/Connect", map[string]any{}, "E2b-Sandbox-Id", s.box, "X-Process-Id", s.id)).All(t)
	if run.End != nil || run.Error == nil || run.Error.Code == "" {
		t.Errorf("Connect: end %+v, error %+v", run.End, run.Error)
	}
}

// checkSandboxGone checks that the sandbox does not exist any more.
func (s *lostStage) checkSandboxGone(t *testing.T) {
	t.Helper()
	gone := rig.Poll(10*time.Second, func() bool {
		return s.APIs[0].Do(t, http.MethodGet, "/sandboxes/"+s.box, nil).Status == http.StatusNotFound
	})
	if !gone {
		t.Error("the sandbox of a lost host exists")
	}
	ans := s.APIs[1].Do(t, http.MethodPost, "/commands", map[string]any{"cmd": "true"}, "E2b-Sandbox-Id", s.box)
	if ans.Status < 400 || ans.Status == http.StatusInternalServerError {
		t.Errorf("a start in it: %v", ans)
	}
}

func (s *lostStage) record(t *testing.T) string {
	t.Helper()
	lines := s.APIs[0].Events(t, s.id, "").All(t)
	if end := rig.End(t, lines); end.ExitCode != nil || end.Cause != "host_lost" {
		t.Errorf("end: %s", end.Raw)
	}
	return raws(lines)
}

// checkFenced checks that the lost host is fenced after its restart: its processes are ended,
// their record is unchanged, and new sandboxes run on it.
func (s *lostStage) checkFenced(t *testing.T, record string) {
	t.Helper()
	if !rig.Poll(30*time.Second, func() bool { return !s.running() }) {
		t.Error("the process of a lost host runs")
	}
	if !rig.Poll(30*time.Second, func() bool { return s.HostStates()["host-1"] == "alive" }) {
		t.Errorf("the hosts are %v", s.HostStates())
	}
	if now := s.record(t); now != record {
		t.Errorf("its record was changed: %d bytes, were %d", len(now), len(record))
	}
	for range 20 {
		box := s.APIs[0].Create(t)
		run := s.APIs[1].StartStream(t, box.ID, "echo anew; exit 7").All(t)
		if run.Stdout() != "anew\n" || run.End == nil || run.End.ExitCode != 7 {
			t.Errorf("in a new sandbox: %q, %s", run.Stdout(), run.Last.Payload)
		}
		if s.HostOf(t, s.APIs[0], box.ID) == "host-1" {
			return
		}
	}
	t.Error("no new sandbox was placed on the restarted host")
}

// A host is killed and does not restart in time, but later. Covers T-53 and T-82.
func TestFaultHostLost(t *testing.T) {
	t.Parallel()
	s := newLostStage(t)
	s.Program("host-1").Kill9()
	s.checkRetryableAtOnce(t)
	record := s.lost(t)
	if !s.running() {
		t.Error("the process died with its host's daemon")
	}
	// The other host gets all new sandboxes.
	if box := s.APIs[1].Create(t); s.HostOf(t, s.APIs[0], box.ID) != "host-2" {
		t.Error("a sandbox was placed on a lost host")
	}
	must(t, s.RestartProgram("host-1"))
	s.checkFenced(t, record)
}

// checkRetryableAtOnce checks that after the end of the lease a call fails at once as retryable.
func (s *lostStage) checkRetryableAtOnce(t *testing.T) {
	t.Helper()
	if !rig.Poll(leaseTime, func() bool { st := s.HostStates()["host-1"]; return st == "silent" || st == "gone" }) {
		t.Fatalf("the hosts are %v", s.HostStates())
	}
	began := time.Now()
	ans := s.APIs[0].Do(t, http.MethodPost, "/filesystem.Filesystem/Stat", map[string]any{"path": "/"}, "E2b-Sandbox-Id", s.box)
	if took := time.Since(began); ans.Status == http.StatusOK || ans.Status == http.StatusInternalServerError || took > 10*time.Second {
		t.Errorf("a call to a silent host: %v after %v", ans, took)
	}
}

// A host that pauses for longer than its lease and then continues is fenced. Covers T-54.
func TestFaultHostPaused(t *testing.T) {
	t.Parallel()
	s := newLostStage(t)
	p := s.Program("host-1")
	p.Stop()
	record := s.lost(t)
	p.Cont()
	s.checkFenced(t, record)
	if !p.Running() {
		t.Error("the daemon exited")
	}
	if log := p.Log(); strings.Contains(log, "panic") {
		t.Error(log)
	}
}
