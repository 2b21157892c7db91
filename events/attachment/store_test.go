package attachment

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
)

// A lease stays as long as a session names its run: when the session was detached depends on it.
func TestWhatIsRemoved(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := NewStore(nil)
	for run, age := range map[string]time.Duration{"NEW": time.Minute, "OLD": 2 * leaseAge, "NAMED": 2 * leaseAge} {
		s.leases.Set(lease{Host: fleet.Host{Lease: fleet.Lease{Host: run}}, stored: now.Add(-age)})
	}
	for id, x := range map[string]Session{
		"WAITS": {Phase: Detached, Gateway: "OLD", Since: now.Add(-2 * leaseAge)},
		"LIVES": {Phase: Attached, Gateway: "NAMED", Since: now.Add(-2 * leaseAge)},
		"ENDED": {Phase: Ended, Gateway: "OLD", Since: now.Add(-time.Minute)},
		"GONE":  {Phase: Ended, Gateway: "OLD", Since: now.Add(-2 * endedAge)},
	} {
		x.ID, x.Tenant = id, "t"
		s.sessions.Set(x)
	}
	s.expire(now)
	for subject, want := range map[string]bool{
		gatewayPrefix + "NEW": true, gatewayPrefix + "OLD": false, gatewayPrefix + "NAMED": true,
		sessionPrefix + "t.WAITS": true, sessionPrefix + "t.LIVES": true, sessionPrefix + "t.ENDED": false, sessionPrefix + "t.GONE": false,
	} {
		if got := s.needed(subject); got != want {
			t.Errorf("%s is needed: %v", subject, got)
		}
	}
	if _, ok := s.Session("t", "ENDED"); !ok {
		t.Error("a session that has just ended is not found")
	}
	if _, ok := s.Session("t", "GONE"); ok {
		t.Error("a session that ended long ago is found")
	}
}
