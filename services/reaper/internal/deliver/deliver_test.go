package deliver

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/seal/sealtest"
	"github.com/millrace/millrace/events/webhook"
)

const secret = "signature secret"

// world is a log with sandboxes and webhooks.
type world struct {
	t    *testing.T
	ctx  context.Context
	log  *events.Log
	view *catalog.View
	ring *seal.Ring
}

func newWorld(t *testing.T, log *events.Log) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, log: log, view: eventstest.View(t, log)}
	w.ring = eventstest.Ring(t, log)
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// config returns a configuration with short waits for receivers on this machine.
func (w *world) config() Config {
	return Config{
		Log: w.log, View: w.view, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Attempts: 3, Backoff: 20 * time.Millisecond, Timeout: 5 * time.Second, Tick: 20 * time.Millisecond,
	}
}

// deliver runs a deliverer until the test ends or stop is called.
func (w *world) deliver(cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := Run(ctx, cfg); err != nil {
			w.t.Errorf("deliver: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

func (w *world) hook(tenant, url string) webhook.Webhook {
	w.t.Helper()
	return w.hookOf(tenant, url, webhook.FormatE2B)
}

func (w *world) hookOf(tenant, url string, format webhook.Format) webhook.Webhook {
	w.t.Helper()
	h := webhook.Webhook{
		ID: webhook.NewID(), Format: format, Tenant: tenant, Name: "n", URL: url, Enabled: true, Types: webhook.Types(),
		Created: time.Now(), From: webhook.Through(w.view.SandboxesRev()),
	}
	h.Secret = sealtest.Seal(w.t, w.ring, h.Place(), secret)
	var err error
	h.Rev, err = w.log.PutWebhook(w.ctx, &h)
	w.ok(err)
	w.ok(w.view.Sync(w.ctx))
	return h
}

// sandbox writes the record of a running sandbox, followed by a number of timeout updates.
func (w *world) sandbox(tenant string, updates int) sandbox.ID {
	w.t.Helper()
	id := sandbox.NewID()
	rev, err := w.log.AppendSandbox(w.ctx, tenant, id, 0, 1, sandbox.Requested{Template: "base"})
	w.ok(err)
	rev, err = w.log.AppendSandbox(w.ctx, tenant, id, rev, 2, sandbox.Placed{}, sandbox.Running{})
	w.ok(err)
	for i := range updates {
		rev, err = w.log.AppendSandbox(w.ctx, tenant, id, rev, uint64(4+i), sandbox.DeadlineSet{Deadline: time.Unix(int64(i+1), 0)})
		w.ok(err)
	}
	return id
}

// receiver is a server that checks and stores the events that it accepts.
type receiver struct {
	t *testing.T
	*httptest.Server
	answer func(n int, w http.ResponseWriter, r *http.Request) bool // false: the event was not accepted

	mu       sync.Mutex
	requests int
	taken    []taken
	more     chan struct{} // capacity 1
}

// taken is an event that a receiver accepted.
type taken struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Sandbox string `json:"sandbox_id"`
	Tenant  string `json:"sandbox_team_id"`
	Data    struct {
		Timeout time.Time `json:"set_timeout"`
	} `json:"event_data"`

	delivery string
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request) bool) *receiver {
	t.Helper()
	rc := &receiver{t: t, answer: answer, more: make(chan struct{}, 1)}
	rc.Server = httptest.NewServer(rc)
	t.Cleanup(rc.Close)
	return rc
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the deliverer was interrupted
	}
	if got := r.Header.Get("e2b-signature"); got != webhook.Sign(secret, raw) || r.Header.Get("e2b-signature-version") != "v1" {
		rc.t.Errorf("signature %q of %s", got, raw)
	}
	ev := taken{delivery: r.Header.Get("e2b-delivery-id")}
	if err := json.Unmarshal(raw, &ev); err != nil {
		rc.t.Errorf("payload %s: %v", raw, err)
	}
	rc.mu.Lock()
	rc.requests++
	n := rc.requests
	rc.mu.Unlock()
	if rc.answer != nil && !rc.answer(n, w, r) {
		return
	}
	rc.mu.Lock()
	rc.taken = append(rc.taken, ev)
	rc.mu.Unlock()
	select {
	case rc.more <- struct{}{}:
	default:
	}
}

// wait waits until enough returns true for the accepted events.
func (rc *receiver) wait(ctx context.Context, enough func([]taken) bool) []taken {
	rc.t.Helper()
	for {
		rc.mu.Lock()
		got := slices.Clone(rc.taken)
		rc.mu.Unlock()
		if enough(got) {
			return got
		}
		select {
		case <-rc.more:
		case <-ctx.Done():
			rc.t.Fatalf("%d events came, %d of them new", len(got), len(unique(got)))
		}
	}
}

func atLeast(n int) func([]taken) bool {
	return func(got []taken) bool { return len(unique(got)) >= n }
}

func unique(all []taken) (out []taken) {
	seen := map[string]bool{}
	for _, e := range all {
		if !seen[e.ID] {
			out = append(out, e)
		}
		seen[e.ID] = true
	}
	return out
}

// checkOrder fails unless the first deliveries of each sandbox's events are in order.
func checkOrder(t *testing.T, all []taken) {
	t.Helper()
	last := map[string]int64{}
	for _, e := range unique(all) {
		at := int64(0) // created
		if e.Type == string(webhook.Updated) {
			at = e.Data.Timeout.Unix()
		}
		if was, ok := last[e.Sandbox]; !ok && at != 0 || ok && at != was+1 {
			t.Errorf("sandbox %s: %d came after %d (%v)", e.Sandbox, at, was, ok)
		}
		last[e.Sandbox] = at
	}
}

// attempts waits until enough returns true for the webhook's log, and returns it oldest first.
func (w *world) attempts(h *webhook.Webhook, enough func([]webhook.Attempt) bool) []webhook.Attempt {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var out []webhook.Attempt
		w.ok(w.log.Attempts(w.ctx, h.Tenant, h.ID, 0, true, func(a webhook.Attempt, _ uint64) bool {
			out = append(out, a)
			return true
		}))
		if enough(out) {
			return out
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("%d attempts", len(out))
		}
	}
}

// Each tenant's webhook gets the events of that tenant's sandboxes, each once, in order.
func TestDelivers(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	early := w.sandbox("a", 1)
	w.ok(w.view.Sync(w.ctx))
	a, b := newReceiver(t, nil), newReceiver(t, nil)
	w.hook("a", a.URL)
	w.hook("b", b.URL)
	w.deliver(w.config())
	for range 5 {
		w.sandbox("a", 10)
	}
	w.sandbox("b", 3)
	forA, forB := a.wait(w.ctx, atLeast(55)), b.wait(w.ctx, atLeast(4))
	checkOrder(t, forA)
	checkOrder(t, forB)
	if len(forA) != 55 || len(forB) != 4 {
		t.Errorf("%d and %d events, want 55 and 4", len(forA), len(forB))
	}
	for _, e := range forA {
		if e.Tenant != "a" || e.Sandbox == string(early) {
			t.Errorf("a was sent %+v", e)
		}
	}
	deliveries := map[string]bool{}
	for _, e := range forA {
		deliveries[e.delivery] = true
	}
	if len(deliveries) != len(forA) {
		t.Errorf("%d delivery ids of %d deliveries", len(deliveries), len(forA))
	}
}

// A receiver that fails, disconnects, or redirects gets the event again, and the next ones after it.
func TestRetries(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	answers := []func(http.ResponseWriter, *http.Request){
		func(rw http.ResponseWriter, _ *http.Request) {
			http.Error(rw, "not now", http.StatusInternalServerError)
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/elsewhere", http.StatusFound) },
	}
	rc := newReceiver(t, func(n int, rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/elsewhere" {
			t.Error("a redirect was followed")
		}
		if n > len(answers) {
			return true
		}
		answers[n-1](rw, r)
		return false
	})
	h := w.hook("a", rc.URL)
	cfg := w.config()
	cfg.Attempts = 5
	w.deliver(cfg)
	w.sandbox("a", 2)
	checkOrder(t, rc.wait(w.ctx, atLeast(3)))
	got := w.attempts(&h, func(all []webhook.Attempt) bool { return len(all) >= 6 })
	for i, want := range []struct {
		status uint32
		err    string
	}{{500, "receiver responded with status 500"}, {0, "EOF"}, {302, "receiver responded with status 302"}, {200, ""}, {200, ""}, {200, ""}} {
		if a := got[i]; a.Status != want.status || a.Error != want.err || a.Last || i < 4 && a.Number != uint32(i+1) {
			t.Errorf("attempt %d: %+v, want %+v", i, a, want)
		}
	}
	if got[0].Response != "not now\n" {
		t.Errorf("response %q", got[0].Response)
	}
}

// An event fails after the maximum number of attempts; later events are sent, and the failed one
// is sent again on request.
func TestGivesUpAndRedelivers(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	rc := newReceiver(t, func(n int, rw http.ResponseWriter, _ *http.Request) bool {
		if n > 3 {
			return true
		}
		rw.WriteHeader(http.StatusTeapot)
		return false
	})
	h := w.hook("a", rc.URL)
	w.deliver(w.config())
	w.sandbox("a", 1)
	got := w.attempts(&h, func(all []webhook.Attempt) bool { return len(all) == 4 })
	if a := got[2]; !a.Last || a.Number != 3 || !a.Failed() || a.Type != webhook.Created || got[1].Last {
		t.Fatalf("the last attempt: %+v", a)
	}
	rc.wait(w.ctx, atLeast(1))
	_, err := w.log.PutRedeliveries(w.ctx, h.Tenant, h.ID, &webhook.Redeliveries{Events: []webhook.Ref{got[2].Ref}})
	w.ok(err)
	all := rc.wait(w.ctx, atLeast(2))
	if all[0].Type != string(webhook.Updated) || all[1].Type != string(webhook.Created) || all[1].ID != got[2].EventID {
		t.Errorf("taken: %+v", all)
	}
	c := w.cursor(&h, func(x *catalog.Hook) bool { return x.Cursor.Done == 2 && len(x.Redeliveries.Events) == 0 }).Cursor
	if c.GivenUp != 1 || c.Attempts != 5 {
		t.Errorf("cursor: %+v", c)
	}
}

// cursor waits until enough returns true for a webhook.
func (w *world) cursor(h *webhook.Webhook, enough func(*catalog.Hook) bool) catalog.Hook {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		got, _ := w.view.Webhook(h.Tenant, h.ID)
		if enough(&got) {
			return got
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("webhook: %+v", got)
		}
	}
}

// A receiver that never responds delays no other webhook, and gets one request at a time after
// its first timeout.
func TestSilentReceiverDelaysNoOther(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	silent := newReceiver(t, func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-blocked:
		case <-r.Context().Done():
		}
		return false
	})
	dead := w.hook("a", silent.URL)
	good := newReceiver(t, nil)
	w.hook("a", good.URL)
	cfg := w.config()
	cfg.Timeout = 2 * time.Second
	w.deliver(cfg)
	for range 3 * window {
		w.sandbox("a", 0)
	}
	good.wait(w.ctx, atLeast(3*window))
	got := w.attempts(&dead, func(all []webhook.Attempt) bool { return len(all) > 0 })
	if got[0].Error != "the receiver did not respond within 2s" {
		t.Errorf("%+v", got[0])
	}
}

// Only the status matters: an endless body does not make an attempt fail.
func TestStatusDecides(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	rc := newReceiver(t, func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		rw.WriteHeader(http.StatusAccepted)
		if err := http.NewResponseController(rw).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		return true
	})
	h := w.hook("a", rc.URL)
	cfg := w.config()
	cfg.Timeout = 2 * time.Second
	w.deliver(cfg)
	w.sandbox("a", 0)
	got := w.attempts(&h, func(all []webhook.Attempt) bool { return len(all) == 1 })
	if got[0].Failed() || got[0].Status != http.StatusAccepted {
		t.Errorf("%+v", got[0])
	}
}

// A receiver that was down gets all events when it is up, in order.
func TestDownThenUp(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	addr := eventstest.FreePorts(t, 1)[0]
	h := w.hook("a", "http://"+addr)
	cfg := w.config()
	cfg.Attempts = 1000
	w.deliver(cfg)
	for range 4 {
		w.sandbox("a", 3)
	}
	got := w.attempts(&h, func(all []webhook.Attempt) bool { return len(all) >= 4 })
	if got[0].Error != "the receiver refused the connection" {
		t.Errorf("%+v", got[0])
	}
	ln, err := net.Listen("tcp", addr)
	w.ok(err)
	rc := &receiver{t: t, more: make(chan struct{}, 1)}
	rc.Server = httptest.NewUnstartedServer(rc)
	rc.Listener = ln
	rc.Start()
	t.Cleanup(rc.Close)
	checkOrder(t, rc.wait(w.ctx, atLeast(16)))
}

// Deliveries reach public addresses only, regardless of DNS; the log has the error.
func TestPrivateAddressesAreRefused(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	rc := newReceiver(t, func(int, http.ResponseWriter, *http.Request) bool {
		t.Error("a receiver at a private address got a request")
		return true
	})
	port := rc.URL[strings.LastIndexByte(rc.URL, ':'):]
	var hooks []webhook.Webhook
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254"} {
		hooks = append(hooks, w.hook("a", "http://"+host+port))
	}
	cfg := w.config()
	cfg.Allow, cfg.Attempts = nil, 1
	w.deliver(cfg)
	w.sandbox("a", 0)
	for i := range hooks {
		got := w.attempts(&hooks[i], func(all []webhook.Attempt) bool { return len(all) == 1 })
		if got[0].Error != "the receiver's address is not public" || !got[0].Last {
			t.Errorf("%s: %+v", hooks[i].URL, got[0])
		}
	}
}

// Of two deliverers one works on a webhook, and the other continues where that one ended.
func TestTwoDeliverers(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	rc := newReceiver(t, nil)
	w.hook("a", rc.URL)
	stop := w.deliver(w.config())
	w.deliver(w.config())
	for i := range 6 {
		w.sandbox("a", 8)
		if i == 3 {
			stop()
		}
	}
	checkOrder(t, rc.wait(w.ctx, atLeast(54)))
}

// A killed deliverer leaves a claim; another one takes it over once it is old enough, and loses
// no event.
func TestTakesOverAfterKill(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	rc := newReceiver(t, nil)
	h := w.hook("a", rc.URL)
	w.sandbox("a", 4)
	_, err := w.log.PutCursor(w.ctx, h.Tenant, h.ID, &webhook.Cursor{At: h.From, Holder: "killed"})
	w.ok(err)
	w.ok(w.view.Sync(w.ctx))
	began := time.Now()
	w.deliver(w.config())
	got := rc.wait(w.ctx, atLeast(5))
	if checkOrder(t, got); time.Since(began) < silence-time.Second {
		t.Errorf("the claim was taken after %s, want %s", time.Since(began), silence)
	}
}

// A deliverer that lost its claim stops sending: two never send at once.
func TestLostClaimStops(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	received, cut := make(chan struct{}), make(chan struct{})
	rc := newReceiver(t, func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			close(received)
			<-r.Context().Done()
			close(cut)
			return false
		}
		return true
	})
	h := w.hook("a", rc.URL)
	cfg := w.config()
	cfg.Timeout = time.Hour
	w.deliver(cfg)
	w.sandbox("a", 0)
	<-received
	x := w.cursor(&h, func(x *catalog.Hook) bool { return x.Cursor.Holder != "" })
	for {
		x.Cursor.Holder = "another"
		if _, err := w.log.PutCursor(w.ctx, h.Tenant, h.ID, &x.Cursor); err == nil {
			break
		}
		w.ok(w.view.Sync(w.ctx)) // the holder has stored it meanwhile
		x, _ = w.view.Webhook(h.Tenant, h.ID)
	}
	select {
	case <-cut:
	case <-w.ctx.Done():
		t.Fatal("the request continues")
	}
	rc.wait(w.ctx, atLeast(1)) // after the other's claim expired
}

// Delivery continues in order across the failure of each server of a cluster.
func TestClusterFailures(t *testing.T) {
	c := eventstest.StartCluster(t)
	w := newWorld(t, c.Open())
	rc := newReceiver(t, nil)
	w.hook("a", rc.URL)
	w.deliver(w.config())
	n := 0
	for i := range 3 {
		w.sandbox("a", 5)
		c.Stop(i)
		w.sandbox("a", 5)
		c.Resume(i)
		n += 12
		checkOrder(t, rc.wait(w.ctx, atLeast(n)))
	}
}
