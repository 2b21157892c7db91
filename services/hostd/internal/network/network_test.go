package network

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/egress"
)

// open returns a network whose sandboxes may use the proxy.
func open(t *testing.T, cfg Config) *Network {
	t.Helper()
	server := egress.NewServer(egress.Config{})
	t.Cleanup(server.Close)
	n := New(cfg)
	n.egress = server
	return n
}

// of returns the network of a sandbox.
func (n *Network) of(s *sandbox.State) *Sandbox {
	return n.Sandbox(SandboxConfig{
		ID: s.ID, Used: s.Used, Isolation: func() sandbox.Isolation { return s.Isolation }, Instance: func() driver.Instance { return nil },
	})
}

// Traffic is reported until the record has it: a report may be superseded. What was counted in
// previous runs is kept.
func TestTrafficIsReportedUntilTheRecordHasIt(t *testing.T) {
	s := sandbox.State{
		ID: "b", Phase: sandbox.PhaseRunning,
		Used: sandbox.NetworkUsed{Sent: 7, Received: 1, Link: sandbox.LinkUsed{Index: 3, Sent: 7, Received: 1}},
	}
	nw := open(t, Config{}).of(&s)
	nw.Apply(&s)
	if said := nw.Traffic(&s); len(said) != 0 {
		t.Errorf("reported without a change: %+v", said)
	}
	nw.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 3, Sent: 9, Received: 1}})
	want := sandbox.NetworkUsed{Sent: 9, Received: 1, Link: sandbox.LinkUsed{Index: 3, Sent: 9, Received: 1}}
	for try := range 2 {
		if said := nw.Traffic(&s); len(said) != 1 || said[0] != want {
			t.Errorf("report %d: %+v, want %+v", try, said, want)
		}
	}
	if s.Used = want; len(nw.Traffic(&s)) != 0 {
		t.Error("reported what the record has")
	}
}

// The traffic of an interface whose policy was narrowed while no host ran is counted to its end.
func TestTrafficIsCountedBeforeThePolicyIsInForce(t *testing.T) {
	s := sandbox.State{ID: "b", Phase: sandbox.PhaseRunning}
	nw := open(t, Config{}).of(&s)
	nw.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 1, Sent: 5}}) // as unplug does
	nw.Apply(&s)
	if said := nw.Traffic(&s); len(said) != 1 || said[0].(sandbox.NetworkUsed).Sent != 5 {
		t.Errorf("reported %+v", said)
	}
}

// The record of a sandbox that sends all the time grows slowly: by one event per hundredth of the
// total, or one per hour. Its end has the total.
func TestTrafficAddsFewEvents(t *testing.T) {
	s := sandbox.State{ID: "b", Phase: sandbox.PhaseRunning}
	nw := open(t, Config{MeterEvery: time.Minute}).of(&s)
	nw.Apply(&s)
	now, lines := time.Now(), 0
	for minute := range uint64(30 * 24 * 60) {
		nw.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 1, Sent: 1_000_000 * (minute + 1)}})
		for _, body := range nw.trafficDue(&s, now.Add(time.Duration(minute)*time.Minute)) {
			s.Used = body.(sandbox.NetworkUsed)
			lines++
		}
		got := nw.Traffic(&s)
		if known := s.Used.Sent; len(got) != 0 && got[0].(sandbox.NetworkUsed).Sent > known+known/meterPart {
			t.Fatalf("minute %d: the record has %d bytes of %d", minute, known, got[0].(sandbox.NetworkUsed).Sent)
		}
	}
	if lines > 1500 {
		t.Errorf("%d events in a month", lines)
	}
}

// Traffic that only one run has counted is on record when that run has ended.
func TestTrafficIsRecordedOnExit(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	id := sandbox.NewID()
	if _, err := view.CreateSandbox(t.Context(), "t", id, sandbox.Requested{}); err != nil {
		t.Fatal(err)
	}
	s, err := view.ChangeSandbox(t.Context(), id, func(sandbox.State) ([]sandbox.Body, error) {
		return []sandbox.Body{sandbox.Placed{Host: "h", Epoch: 1}, sandbox.Running{}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []*Sandbox
	n := open(t, Config{Sandboxes: func() []*Sandbox { return all }, Slog: slog.New(slog.DiscardHandler)})
	n.UseView(view)
	nw := n.of(&s)
	all = append(all, nw)
	nw.Apply(&s)
	nw.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{id: {Index: 1, Sent: 5}})
	n.Record(t.Context())
	if s, _ := view.Sandbox(id); s.Used.Sent != 5 {
		t.Errorf("record has %+v", s.Used)
	}
}

// Only a sandbox that is isolated has a loopback of its own.
func TestIsolatedSandboxes(t *testing.T) {
	for level, want := range map[sandbox.Isolation]bool{"": false, sandbox.IsolationNone: false, sandbox.IsolationKernel: true} {
		if New(Config{}).of(&sandbox.State{Isolation: level}).isolated() != want {
			t.Errorf("isolation %q: isolated is %v", level, !want)
		}
	}
}

func TestNameServerIsReachable(t *testing.T) {
	for _, tt := range []struct{ name, dns, allow, want string }{
		{"none", "", "", publicDNS},
		{"public", "9.9.9.9:53", "", "9.9.9.9"},
		{"private", "10.0.0.53:53", "", publicDNS},
		{"private and allowed", "10.0.0.53:53", "10.0.0.0/8", "10.0.0.53"},
		{"another port", "9.9.9.9:5353", "", publicDNS},
		{"IPv6", "[2620:fe::fe]:53", "", publicDNS},
		{"the host's own", "127.0.0.53:53", "127.0.0.0/8", publicDNS},
		{"a name", "dns.test:53", "", publicDNS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{DNS: tt.dns}
			if tt.allow != "" {
				cfg.Allow = []netip.Prefix{netip.MustParsePrefix(tt.allow)}
			}
			if got := cfg.nameServer(); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
