package operations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

var (
	alice = core.Principal{Tenant: "alice"}
	bob   = core.Principal{Tenant: "bob"}
)

// fixture is a gateway's operations with its log and a host.
type fixture struct {
	*operations.Operations
	t    *testing.T
	srv  *eventstest.Server
	log  *events.Log
	view *catalog.View
	host *coretest.Host
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{t: t, srv: eventstest.Start(t)}
	h.log = eventstest.Open(t, h.srv)
	h.view = eventstest.View(t, h.log)
	h.host = coretest.Run(t, h.log, h.view)
	h.Operations = h.newOperations()
	return h
}

// newOperations returns the operations of another gateway on the same log.
func (h *fixture) newOperations() *operations.Operations {
	return operations.New(h.config())
}

// impatient returns the operations of a gateway that gives a host little time to create a sandbox
// and to take a start.
func (h *fixture) impatient() *operations.Operations {
	cfg := h.config()
	cfg.CreateTimeout, cfg.StartTimeout = 2*time.Second, 2*time.Second
	return operations.New(cfg)
}

func (h *fixture) config() core.Config {
	return core.Config{Log: h.log, View: eventstest.View(h.t, h.log), Secret: []byte("secret"), Sealer: eventstest.Ring(h.t, h.log)}
}

func (h *fixture) sandbox(p core.Principal) sandbox.State {
	h.t.Helper()
	st, err := h.Provisioner.CreateSandbox(h.t.Context(), p, sandbox.Requested{Template: "base", Secure: true, Schedule: sandbox.Schedule{Lifetime: time.Hour}})
	if err != nil {
		h.t.Fatalf("create sandbox: %v", err)
	}
	return st
}

func (h *fixture) start(sbx sandbox.ID, spec process.Spec) process.ID {
	h.t.Helper()
	a, err := h.Procs.Start(h.t.Context(), alice, sbx, spec, procs.StartOptions{})
	if err != nil {
		h.t.Fatalf("start %s: %v", spec.Cmd, err)
	}
	defer a.Reader.Close()
	for {
		batch, err := a.Reader.Next(h.t.Context(), 0)
		if err != nil {
			h.t.Fatalf("start %s: %v", spec.Cmd, err)
		}
		for _, e := range batch {
			if _, ok := e.Body.(process.Started); ok {
				return a.ID
			}
		}
	}
}

// all reads a record to its end.
func all(t *testing.T, r *record.Reader) []process.Event {
	t.Helper()
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out []process.Event
	for {
		batch, err := r.Next(ctx, 0)
		out = append(out, batch...)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("read: %v after %d events", err, len(out))
		}
	}
}

func wantKind(t *testing.T, what string, err error, want kind.Kind) {
	t.Helper()
	if !kind.Is(err, want) {
		t.Errorf("%s: %v, want kind %s", what, err, want)
	}
}

func TestStartReadsTheWholeRecord(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	a, err := h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "echo", Args: []string{"a", "b"}}, procs.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for i, e := range all(t, a.Reader.Reader) {
		if e.Seq != process.Seq(i+1) {
			t.Errorf("event %d has seq %d", i, e.Seq)
		}
		types = append(types, e.Type())
	}
	want := []string{"accepted", "start", "stdout", "stdout", "exited", "end"}
	if len(types) != len(want) {
		t.Fatalf("events %v, want %v", types, want)
	}
	for i := range want {
		if types[i] != want[i] {
			t.Errorf("events %v, want %v", types, want)
		}
	}
	if a.ID.Sandbox() != st.ID {
		t.Errorf("id %s is not of sandbox %s", a.ID, st.ID)
	}
}

func TestStartRejectsInvalidRequests(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	over := h.sandbox(alice)
	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, over.ID); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		p    core.Principal
		sbx  sandbox.ID
		spec process.Spec
		want kind.Kind
	}{
		{"no command", alice, st.ID, process.Spec{}, kind.Invalid},
		{"unknown sandbox", alice, sandbox.NewID(), process.Spec{Cmd: "true"}, kind.NotFound},
		{"another tenant's sandbox", bob, st.ID, process.Spec{Cmd: "true"}, kind.NotFound},
		{"another sandbox's token", core.Principal{Tenant: "alice", Sandbox: over.ID}, st.ID, process.Spec{Cmd: "true"}, kind.NotFound},
		{"no tenant", core.Principal{}, st.ID, process.Spec{Cmd: "true"}, kind.NotFound},
		{"sandbox that is over", alice, over.ID, process.Spec{Cmd: "true"}, kind.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := h.Procs.Start(t.Context(), tt.p, tt.sbx, tt.spec, procs.StartOptions{})
			wantKind(t, "Start", err, tt.want)
		})
	}
}

func TestStartOnDeadHostFailsAtOnce(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	id := h.start(st.ID, process.Spec{Cmd: "cat", Stdin: true})
	h.host.Lease(t.Context(), fleet.Lease{TTL: time.Nanosecond})
	if err := h.Core.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "true"}, procs.StartOptions{})
	wantKind(t, "Start", err, kind.Unavailable)
	wantKind(t, "SendInput", h.Procs.SendInput(t.Context(), alice, id, []byte("x"), false), kind.Unavailable)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the rejection took %s", d)
	}
}

func TestOneKeyStartsOneProcess(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	spec := process.Spec{Cmd: "echo", Args: []string{"once"}, Env: map[string]string{"A": "1"}}
	gateways := []*operations.Operations{h.Operations, h.newOperations()}
	var wg sync.WaitGroup
	ids := make([]process.ID, 8)
	for i := range ids {
		wg.Go(func() {
			a, err := gateways[i%2].Procs.Start(t.Context(), alice, st.ID, spec, procs.StartOptions{IdempotencyKey: "k"})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			ids[i] = a.ID
			if n := len(all(t, a.Reader.Reader)); n != 5 {
				t.Errorf("start %d: %d events, want 5", i, n)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("ids %v: want one", ids)
		}
	}
	if n := h.host.Starts(ids[0]); n != 1 {
		t.Errorf("started %d times", n)
	}
	other := spec
	other.Env = map[string]string{"A": "2"}
	_, err := h.Procs.Start(t.Context(), alice, st.ID, other, procs.StartOptions{IdempotencyKey: "k"})
	wantKind(t, "same key, other environment", err, kind.Conflict)

	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, st.ID); err != nil {
		t.Fatal(err)
	}
	a, err := h.Procs.Start(t.Context(), alice, st.ID, spec, procs.StartOptions{IdempotencyKey: "k"})
	if err != nil {
		t.Fatalf("retry after the sandbox is gone: %v", err)
	}
	if n := len(all(t, a.Reader.Reader)); n != 5 {
		t.Errorf("retry after the sandbox is gone: %d events, want 5", n)
	}
}

func TestUnclaimedStartEnds(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	g := h.impatient()
	go func() { done <- g.Procs.Run(ctx) }()
	a, err := g.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "unheard"}, procs.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := all(t, a.Reader.Reader)
	fin, ok := got[len(got)-1].Body.(process.Finished)
	if !ok || fin.Exit.Cause != process.CauseNotStarted || fin.Exit.Code != nil {
		t.Errorf("last event %+v, want an end without a code", got[len(got)-1].Body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestFind(t *testing.T) {
	h := newFixture(t)
	st, tag := h.sandbox(alice), "web"
	other := h.sandbox(alice)
	first := h.start(st.ID, process.Spec{Cmd: "true", Tag: &tag})
	active := h.start(st.ID, process.Spec{Cmd: "sleep", Tag: &tag})
	last := h.start(st.ID, process.Spec{Cmd: "true", Tag: &tag})
	unknown := "db"
	pid := func(id process.ID) uint32 {
		s, err := h.Procs.Process(t.Context(), alice, id)
		if err != nil {
			t.Fatal(err)
		}
		return s.PID
	}
	tests := []struct {
		name string
		p    core.Principal
		sbx  sandbox.ID
		sel  procs.Selector
		want process.ID // empty: NotFound
	}{
		{"pid of an ended process", alice, st.ID, procs.Selector{PID: pid(first)}, first},
		{"pid of an active process", alice, st.ID, procs.Selector{PID: pid(active)}, active},
		{"tag means the active one", alice, st.ID, procs.Selector{Tag: &tag}, active},
		{"id", alice, st.ID, procs.Selector{ID: last}, last},
		{"pid never seen", alice, st.ID, procs.Selector{PID: 4711}, ""},
		{"no pid", alice, st.ID, procs.Selector{}, ""},
		{"tag never seen", alice, st.ID, procs.Selector{Tag: &unknown}, ""},
		{"id of another sandbox", alice, other.ID, procs.Selector{ID: last}, ""},
		{"pid of another sandbox", alice, other.ID, procs.Selector{PID: pid(first)}, ""},
		{"another tenant", bob, st.ID, procs.Selector{ID: last}, ""},
		{"token of another sandbox", core.Principal{Tenant: "alice", Sandbox: other.ID}, st.ID, procs.Selector{ID: last}, ""},
		{"token of this sandbox", core.Principal{Tenant: "alice", Sandbox: st.ID}, st.ID, procs.Selector{ID: last}, last},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := h.Procs.Find(t.Context(), tt.p, tt.sbx, tt.sel)
			if tt.want == "" {
				wantKind(t, "Find", err, kind.NotFound)
			} else if err != nil || got.ID != tt.want {
				t.Errorf("Find = %s, %v; want %s", got.ID, err, tt.want)
			}
		})
	}
}

// A client can take an answer of one gateway to any other at once.
func TestReadYourWritesAcrossGateways(t *testing.T) {
	h := newFixture(t)
	other := h.newOperations()
	for range 20 {
		st := h.sandbox(alice)
		if _, err := other.Lifecycle.Lookup(t.Context(), alice, st.ID); err != nil {
			t.Fatalf("sandbox at another gateway: %v", err)
		}
		id := h.start(st.ID, process.Spec{Cmd: "sleep"})
		list, err := other.Procs.Processes(t.Context(), alice, st.ID, (*process.Summary).Active)
		if err != nil || len(list) != 1 || list[0].ID != id {
			t.Fatalf("list at another gateway: %v, %v", list, err)
		}
	}
}

// A sandbox that one gateway has created runs for all others, although their views may
// lag behind.
func TestStartAtAnotherGateway(t *testing.T) {
	h := newFixture(t)
	other := h.newOperations()
	const sandboxes = 10 // the host's capacity
	for range sandboxes {
		st := h.sandbox(alice)
		if ok, err := other.Lifecycle.Running(t.Context(), alice, st.ID); !ok || err != nil {
			t.Errorf("Running: %v, %v", ok, err)
		}
		a, err := other.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "true"}, procs.StartOptions{})
		if err != nil {
			t.Errorf("Start: %v", err)
			continue
		}
		a.Reader.Close()
	}
}

func TestReadOutlivesTheSandbox(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	id := h.start(st.ID, process.Spec{Cmd: "echo", Args: []string{"kept"}})
	if err := h.Lifecycle.DestroySandbox(t.Context(), alice, st.ID); err != nil {
		t.Fatal(err)
	}
	r, err := h.newOperations().Procs.Read(t.Context(), alice, id, 2)
	if err != nil {
		t.Fatal(err)
	}
	got := all(t, r)
	if len(got) != 3 || got[0].Seq != 3 {
		t.Errorf("events %+v, want 3 from seq 3", got)
	}
	for name, p := range map[string]core.Principal{"another tenant": bob, "no tenant": {}} {
		_, err := h.Procs.Read(t.Context(), p, id, 0)
		wantKind(t, name, err, kind.NotFound)
	}
	_, err = h.Procs.Read(t.Context(), alice, process.NewID(st.ID), 0)
	wantKind(t, "unknown process", err, kind.NotFound)
}

// A process that never started has a record, but no entry in the catalog.
func TestReadOfAProcessThatNeverStarted(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	a, err := h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "nocwd"}, procs.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := len(all(t, a.Reader.Reader))
	r, err := h.newOperations().Procs.Read(t.Context(), alice, a.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(all(t, r)); got != want || got != 3 {
		t.Errorf("%d events, want %d", got, want)
	}
}

// If the process does not read, the error reports that, and not an unreachable sandbox.
func TestUnreadInputTimesOut(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	id := h.start(st.ID, process.Spec{Cmd: "deaf", Stdin: true})
	if err := h.view.Sync(t.Context()); err != nil { // a process that is not in the view is searched within CallTimeout
		t.Fatal(err)
	}
	c := operations.New(core.Config{Log: h.log, View: h.view, Secret: []byte("secret"), Sealer: eventstest.Ring(t, h.log), CallTimeout: time.Nanosecond, InputTimeout: 2 * time.Second})
	err := c.Procs.SendInput(t.Context(), alice, id, []byte("x"), false)
	wantKind(t, "SendInput", err, kind.Deadline)
	if got, want := kind.Message(err), "the process did not read its input in time"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A client has the id of a process as soon as the start is stored, before a host has taken it.
func TestInputRightAfterTheStart(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	for range 20 {
		a, err := h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "cat", Stdin: true}, procs.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Procs.SendInput(t.Context(), alice, a.ID, []byte("x"), true); err != nil {
			t.Fatal(err)
		}
		a.Reader.Close()
	}
}

func TestInput(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	id := h.start(st.ID, process.Spec{Cmd: "cat", Stdin: true})
	r, err := h.Procs.Read(t.Context(), alice, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 600<<10) // more than one command carries
	if err := h.Procs.SendInput(t.Context(), alice, id, big, false); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "another tenant", h.Procs.SendInput(t.Context(), bob, id, []byte("x"), false), kind.NotFound)
	if err := h.Procs.SendInput(t.Context(), alice, id, nil, true); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range all(t, r) {
		if w, ok := e.Body.(process.Wrote); ok {
			n += len(w.Data)
		}
	}
	if n != len(big) {
		t.Errorf("%d bytes came back, want %d", n, len(big))
	}
	wantKind(t, "after the end", h.Procs.SendInput(t.Context(), alice, id, []byte("x"), false), kind.NotFound)
	closed := h.start(st.ID, process.Spec{Cmd: "sleep"})
	wantKind(t, "stdin never open", h.Procs.SendInput(t.Context(), alice, closed, []byte("x"), false), kind.Precondition)
}

// Input with a key reaches the process once, wherever it is retried.
func TestKeyedInputIsDeliveredOnce(t *testing.T) {
	h := newFixture(t)
	other := h.newOperations()
	id := h.start(h.sandbox(alice).ID, process.Spec{Cmd: "cat", Stdin: true})
	r, err := h.Procs.Read(t.Context(), alice, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 600<<10) // more than one command carries
	for _, c := range []*operations.Operations{h.Operations, other, h.Operations} {
		for key, data := range map[string][]byte{"1": big, "2": []byte("x")} {
			if err := c.Procs.SendInputOnce(t.Context(), alice, id, key, data, false); err != nil {
				t.Fatalf("key %s: %v", key, err)
			}
		}
	}
	wantKind(t, "other data with the key", other.Procs.SendInputOnce(t.Context(), alice, id, "2", []byte("y"), false), kind.Conflict)
	const more = 150 // each an event, and one that answers
	for i := range more {
		if err := h.Procs.SendInputOnce(t.Context(), alice, id, fmt.Sprint("more ", i), []byte("z"), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Procs.SendInputOnce(t.Context(), alice, id, "end", nil, true); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range all(t, r) {
		if w, ok := e.Body.(process.Wrote); ok {
			n += len(w.Data)
		}
	}
	if err := other.Procs.SendInputOnce(t.Context(), alice, id, "end", nil, true); err != nil {
		t.Errorf("retry of the input that ended the process: %v", err)
	}
	if err := other.Procs.SendInputOnce(t.Context(), alice, id, "2", []byte("x"), false); err != nil {
		t.Errorf("retry of an input %d inputs before the end: %v", more, err)
	}
	eventstest.ForgetBut(t, h.srv, 20, "OUT_")
	if err := other.Procs.SendInputOnce(t.Context(), alice, id, fmt.Sprint("more ", more-1), []byte("z"), false); err != nil {
		t.Errorf("retry of the last input after older events were dropped: %v", err)
	}
	wantKind(t, "an input whose acknowledgement was dropped", other.Procs.SendInputOnce(t.Context(), alice, id, "2", []byte("x"), false), kind.NotFound)
	wantKind(t, "a new input after the end", other.Procs.SendInputOnce(t.Context(), alice, id, "late", nil, true), kind.NotFound)
	if want := len(big) + 1 + more; n != want {
		t.Errorf("%d bytes came back, want %d", n, want)
	}
}

func TestResizeWithoutATerminalIsIgnored(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	id := h.start(st.ID, process.Spec{Cmd: "sleep"})
	if err := h.Procs.Resize(t.Context(), alice, id, process.Size{Cols: 80, Rows: 24}); err != nil {
		t.Errorf("resize: %v", err)
	}
	wantKind(t, "too large", h.Procs.Resize(t.Context(), alice, id, process.Size{Cols: 1 << 20}), kind.Invalid)
	pty := h.start(st.ID, process.Spec{Cmd: "sleep", PTY: &process.Size{Cols: 1, Rows: 1}})
	if err := h.Procs.Resize(t.Context(), alice, pty, process.Size{Cols: 80, Rows: 24}); err != nil {
		t.Errorf("resize: %v", err)
	}
	tip, err := h.Procs.Tail(t.Context(), alice, pty)
	if err != nil || tip.Last != 3 {
		t.Errorf("tip %+v, %v; want 3 events", tip, err)
	}
}

// A start that is under way while the log restarts happens exactly once.
func TestStartWhileTheLogRestarts(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	h.srv.Stop()
	done := make(chan process.ID, 1)
	go func() {
		a, err := h.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "echo", Args: []string{"x"}}, procs.StartOptions{})
		if err != nil {
			t.Errorf("start: %v", err)
			close(done)
			return
		}
		if n := len(all(t, a.Reader.Reader)); n != 5 {
			t.Errorf("%d events, want 5", n)
		}
		done <- a.ID
	}()
	h.srv.Resume()
	if id := <-done; h.host.Starts(id) != 1 {
		t.Errorf("started %d times", h.host.Starts(id))
	}
}

func TestUnavailableWithoutTheLog(t *testing.T) {
	h := newFixture(t)
	st := h.sandbox(alice)
	quick := operations.New(core.Config{Log: h.log, View: h.view, Secret: []byte("secret"), Sealer: eventstest.Ring(t, h.log),
		CreateTimeout: 100 * time.Millisecond, StartTimeout: 100 * time.Millisecond, CallTimeout: 100 * time.Millisecond})
	h.srv.Stop()
	_, err := quick.Procs.Start(t.Context(), alice, st.ID, process.Spec{Cmd: "true"}, procs.StartOptions{})
	wantKind(t, "Start", err, kind.Unavailable)
	_, err = quick.Provisioner.CreateSandbox(t.Context(), alice, sandbox.Requested{Template: "base"})
	wantKind(t, "CreateSandbox", err, kind.Unavailable)
	_, err = quick.Lifecycle.SetDeadline(t.Context(), alice, st.ID, time.Now().Add(time.Minute), false)
	wantKind(t, "SetDeadline", err, kind.Unavailable)
	_, err = quick.Procs.Processes(t.Context(), alice, st.ID, (*process.Summary).Active)
	wantKind(t, "Processes", err, kind.Unavailable)
	wantKind(t, "Ready", quick.Core.Ready(t.Context()), kind.Unavailable)
	h.srv.Resume()
}

// A gateway lets no client without a token into a private sandbox that its view lacks.
func TestTrafficTokenOfANewSandbox(t *testing.T) {
	h := newFixture(t)
	far := eventstest.Open(t, h.srv) // h's view does not have its appends yet
	for i := range 200 {
		id := sandbox.NewID()
		made := sandbox.Requested{Template: "base", Secure: true, Network: sandbox.Network{Private: true}}
		if _, err := far.AppendSandbox(t.Context(), alice.Tenant, id, 0, 1, made); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Lifecycle.IngressClient(t.Context(), id, "wrong"); !kind.Is(err, kind.Denied) {
			t.Fatalf("%d: wrong traffic token: %v", i, err)
		}
		if p, err := h.Lifecycle.IngressClient(t.Context(), id, h.Lifecycle.TrafficToken(id)); err != nil || p.Sandbox != id {
			t.Fatalf("%d: right traffic token: %+v, %v", i, p, err)
		}
	}
	_, err := h.Lifecycle.IngressClient(t.Context(), sandbox.NewID(), "wrong")
	wantKind(t, "unknown sandbox", err, kind.NotFound)
}
