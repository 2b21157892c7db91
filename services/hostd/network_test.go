package hostd

import (
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/egress"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// Traffic is reported until the record has it: a report may be superseded. What was counted in
// previous runs is kept.
func TestTrafficIsReportedUntilTheRecordHasIt(t *testing.T) {
	server := egress.NewServer(egress.Config{})
	defer server.Close()
	h := &host{}
	h.network.egress = server
	s := sandbox.State{
		ID: "b", Phase: sandbox.PhaseRunning,
		Used: sandbox.NetworkUsed{Sent: 7, Received: 1, Link: sandbox.LinkUsed{Index: 3, Sent: 7, Received: 1}},
	}
	sb := newSandbox(h, &s)
	if said := sb.network.traffic(&s); len(said) != 0 {
		t.Errorf("reported without a change: %+v", said)
	}
	sb.network.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 3, Sent: 9, Received: 1}})
	want := sandbox.NetworkUsed{Sent: 9, Received: 1, Link: sandbox.LinkUsed{Index: 3, Sent: 9, Received: 1}}
	for try := range 2 {
		if said := sb.network.traffic(&s); len(said) != 1 || said[0] != want {
			t.Errorf("report %d: %+v, want %+v", try, said, want)
		}
	}
	if s.Used = want; len(sb.network.traffic(&s)) != 0 {
		t.Error("reported what the record has")
	}
}

// The traffic of an interface whose policy was narrowed while no host ran is counted to its end.
func TestTrafficIsCountedBeforeThePolicyIsInForce(t *testing.T) {
	server := egress.NewServer(egress.Config{})
	defer server.Close()
	s := sandbox.State{ID: "b", Phase: sandbox.PhaseRunning}
	sb := newSandbox(&host{}, &s)
	sb.network.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 1, Sent: 5}}) // as unplug does
	sb.h.network.egress = server
	sb.setDesired(&s)
	if said := sb.network.traffic(&s); len(said) != 1 || said[0].(sandbox.NetworkUsed).Sent != 5 {
		t.Errorf("reported %+v", said)
	}
}

// The record of a sandbox that sends all the time grows slowly: by one event per hundredth of the
// total, or one per hour. Its end has the total.
func TestTrafficAddsFewEvents(t *testing.T) {
	server := egress.NewServer(egress.Config{})
	defer server.Close()
	s := sandbox.State{ID: "b", Phase: sandbox.PhaseRunning}
	h := &host{cfg: Config{meterEvery: time.Minute}}
	h.network.egress = server
	sb := newSandbox(h, &s)
	now, lines := time.Now(), 0
	for minute := range uint64(30 * 24 * 60) {
		sb.network.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{"b": {Index: 1, Sent: 1_000_000 * (minute + 1)}})
		for _, body := range sb.network.trafficDue(&s, now.Add(time.Duration(minute)*time.Minute)) {
			s.Used = body.(sandbox.NetworkUsed)
			lines++
		}
		got := sb.network.traffic(&s)
		if known := s.Used.Sent; len(got) != 0 && got[0].(sandbox.NetworkUsed).Sent > known+known/meterPart {
			t.Fatalf("minute %d: the record has %d bytes of %d", minute, known, got[0].(sandbox.NetworkUsed).Sent)
		}
	}
	if lines > 1500 {
		t.Errorf("%d events in a month", lines)
	}
}

// Traffic that only one run has counted is on record when that run has ended.
func TestTrafficIsReportedOnExit(t *testing.T) {
	server := egress.NewServer(egress.Config{})
	defer server.Close()
	log := eventstest.Open(t, eventstest.Start(t))
	h := &host{
		cfg: Config{Name: hostName, LeaseTTL: time.Minute}, log: log, view: eventstest.View(t, log), slog: slog.New(slog.DiscardHandler),
		runCtx: t.Context(),
	}
	h.network.egress = server
	trees, err := openTemplates(&Config{DataDir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	h.templates.cache = trees
	if h.journal, err = journal.Open(t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	defer h.journal.Close() //nolint:errcheck // nothing is read again
	h.assemble()
	r := &rig{t: t, log: log, view: h.view, cfg: h.cfg}
	id := r.request(sandbox.Requested{})
	s := r.ask(id, sandbox.PhaseRunning, sandbox.Running{})
	sb := newSandbox(h, &s)
	h.sandboxes.byID[id] = sb
	sb.network.addLinkTraffic(map[sandbox.ID]sandbox.LinkUsed{id: {Index: 1, Sent: 5}})
	lease, err := h.leases.take(t.Context())
	if err == nil {
		err = h.leave(lease)
	}
	if s, _ := h.view.Sandbox(id); err != nil || s.Used.Sent != 5 {
		t.Errorf("record has %+v, %v", s.Used, err)
	}
}
