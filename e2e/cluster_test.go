package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// doctor --cluster finds nothing in a healthy cluster, names a server that was killed, and finds
// nothing again once it is back.
func TestDoctorExplainsACluster(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{NATS: 3})
	examined := func(healthy bool, want string) {
		t.Helper()
		var out string
		if !rig.Poll(time.Minute, func() bool {
			var ok bool
			out, ok = millrace(t, nil, "doctor", "--cluster", "--nats", s.URL)
			return ok == healthy && strings.Contains(out, want)
		}) {
			t.Errorf("healthy %v, %q: never; last:\n%s", healthy, want, out)
		}
	}
	examined(true, "leads the cluster")
	s.Program("nats-3").Kill9()
	examined(false, "FAIL  NATS server nats-3: offline")
	s.Program("scheduler-1").Kill9()
	examined(false, "FAIL  scheduler: no service is connected")
	must(t, s.Program("scheduler-1").Restart())
	must(t, s.Program("nats-3").Restart())
	examined(true, "ok    NATS server nats-3")
}
