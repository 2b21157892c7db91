package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// silentFor is how long a server's packets are dropped: far longer than a lease.
const silentFor = 25 * time.Second

// All packets of one of three NATS servers are dropped, without a reset; then only those
// between it and the other servers. No host loses its lease or a sandbox, no command loses a
// byte, and clients of that server continue within seconds.
func TestFaultNATSServerSilent(t *testing.T) {
	if err := rig.CanApart(); err != nil {
		t.Skip(err)
	}
	t.Parallel() // it mostly waits
	for _, tt := range []struct {
		name    string
		clients bool
	}{{"for all", true}, {"for the other servers", false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTopology(t, rig.Topology{NATS: 3, Apart: true, Gateways: 2, Schedulers: 2, Reapers: 2, Hosts: 2})
			c := newCrowd(t)
			var boxes []string
			var pids []uint32
			for range 4 {
				box := s.APIs[0].Create(t)
				id, pid := launch(t, s.APIs[0], box.ID, counter{every: 5 * time.Millisecond}.spec())
				c.watch(s.APIs, box.ID, id, 0, surfaces...)
				boxes, pids = append(boxes, box.ID), append(pids, pid)
			}
			c.progress(t, 50)
			same := sameRuns(t, s)
			victim, err := s.ServerOf("host-1")
			if err != nil || victim == "" {
				t.Fatalf("host-1 is connected to %q: %v", victim, err)
			}
			c.stalled()
			must(t, s.Isolate(victim, tt.clients))
			began := time.Now()
			c.progress(t, 200)
			t.Logf("%s silent: silence of records %v", victim, c.stalled().Round(time.Millisecond))
			took := stat(t, s.APIs[0], boxes[0])
			t.Logf("a call took %v", took.Round(time.Millisecond))
			if now, err := s.ServerOf("host-1"); err != nil || now == victim || now == "" {
				t.Errorf("host-1 is connected to %q after %v: %v", now, time.Since(began), err)
			}
			<-time.After(silentFor - time.Since(began))
			c.progress(t, 200)
			must(t, s.Join(victim, tt.clients))
			c.progress(t, 200)
			same()
			for i, box := range boxes {
				s.APIs[1].Want(t, 200, "GET", "/sandboxes/"+box, nil)
				stopCounter(t, s.APIs, box, pids[i], "stdin")
			}
			c.finish(t, counterCode)
			checkPauses(t, c)
			for _, name := range s.Names() {
				if log := s.Program(name).Log(); strings.Contains(log, "host is gone") || strings.Contains(log, "declare host gone") {
					t.Errorf("%s: a host was declared gone:\n%s", name, log)
				}
			}
		})
	}
}
