package persist

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/bootstrap"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/frame"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/outbound"
)

const auth = "Custom  a=b, c"

// world is a log with conversations.
type world struct {
	t    *testing.T
	ctx  context.Context
	log  *events.Log
	view *catalog.View
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	log := eventstest.Open(t, eventstest.Start(t))
	return &world{t: t, ctx: ctx, log: log, view: eventstest.View(t, log)}
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// talk is a runtime whose record a test writes.
type talk struct {
	w      *world
	out    *record.Writer
	seq    process.Seq
	offset uint64
}

// conversation adds a sandbox of a conversation.
func (w *world) conversation(id, url string, generation uint32) *talk {
	w.t.Helper()
	backend, err := sandbox.SealPersistence(eventstest.Ring(w.t, w.log), "t", url, auth)
	w.ok(err)
	backend.Conversation, backend.Generation = id, generation
	sbx := sandbox.NewID()
	rev, err := w.log.AppendSandbox(w.ctx, "t", sbx, 0, 1, sandbox.Requested{Template: "base", E2A: sandbox.E2A{Persistence: backend}})
	w.ok(err)
	_, err = w.log.AppendSandbox(w.ctx, "t", sbx, rev, 2, sandbox.Placed{Host: "h", Epoch: 1}, sandbox.Running{})
	w.ok(err)
	pid := process.NewID(sbx)
	tag := bootstrap.Tag
	_, err = w.log.PutSummary(w.ctx, &process.Summary{ID: pid, Tenant: "t", Host: "h", Epoch: 1, Started: time.Now(), PID: 7, Spec: process.Spec{Cmd: "x", Tag: &tag, Helper: true}}, 0)
	w.ok(err)
	w.ok(w.view.Sync(w.ctx))
	k := &talk{w: w, out: w.log.Writer(record.Ref{Host: "h", ID: pid}, 1)}
	k.add(process.Accepted{}, process.Started{PID: 7})
	return k
}

func (k *talk) add(bodies ...process.Body) {
	k.w.t.Helper()
	var all []process.Event
	for _, b := range bodies {
		k.seq++
		all = append(all, process.Event{Seq: k.seq, Time: time.Now(), Body: b})
	}
	k.w.ok(k.out.Append(k.w.ctx, all))
}

// says writes messages, each in two events.
func (k *talk) says(all ...string) {
	k.w.t.Helper()
	for _, text := range all {
		data := frame.Append(nil, frame.Text, []byte(text))
		if asked, ok := strings.CutPrefix(text, "client: "); ok {
			data = frame.AppendMessage(nil, frame.Message{Received: &asked})
		}
		half := len(data) / 2
		for _, part := range [][]byte{data[:half], data[half:]} {
			k.add(process.Wrote{Stream: process.Stdout, Offset: k.offset, Data: part})
			k.offset += uint64(len(part))
		}
	}
}

func (k *talk) end() {
	k.w.t.Helper()
	code := int32(0)
	k.add(process.Exited{Exit: process.Exit{Code: &code, Cause: process.CauseExited}}, process.Finished{Exit: process.Exit{Code: &code, Cause: process.CauseExited}})
}

// backend is a server that records what it accepts.
type backend struct {
	t *testing.T
	*httptest.Server

	mu       sync.Mutex
	requests int
	answer   func(n int, w http.ResponseWriter, r *http.Request) bool // false: the messages are not accepted
	seen     map[string]bool
	got      []string
	keys     map[string]string // bodies by idempotency key
	more     chan struct{}
}

func newBackend(t *testing.T) *backend {
	b := &backend{t: t, seen: make(map[string]bool), keys: make(map[string]string), more: make(chan struct{}, 1)}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	var body json.RawMessage
	var in batch
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Messages) == 0 {
		b.t.Errorf("%s: %v", body, err)
		return
	}
	if got := r.Header["Authorization"]; len(got) != 1 || got[0] != auth {
		b.t.Errorf("Authorization %q", got)
	}
	if r.Method != http.MethodPut || r.URL.Path != "/base/conversations/"+in.Conversation+"/events" || r.URL.RawQuery != "x=1" {
		b.t.Errorf("%s %s", r.Method, r.URL)
	}
	b.mu.Lock()
	b.requests++
	n, answer, key := b.requests, b.answer, r.Header.Get("Idempotency-Key")
	if was, ok := b.keys[key]; ok && was != string(body) {
		b.t.Errorf("the key %s has two bodies", key)
	}
	b.keys[key] = string(body)
	b.mu.Unlock()
	if answer != nil && !answer(n, w, r) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range in.Messages {
		if !b.seen[m.ID] {
			b.seen[m.ID] = true
			b.got = append(b.got, m.From+": "+*m.Data)
		}
	}
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// want waits until the backend has exactly these messages.
func (b *backend) want(ctx context.Context, want ...string) {
	b.t.Helper()
	for {
		b.mu.Lock()
		got := slices.Clone(b.got)
		b.mu.Unlock()
		if len(got) >= len(want) {
			if !slices.Equal(got, want) {
				b.t.Errorf("got %q, want %q", got, want)
			}
			return
		}
		select {
		case <-b.more:
		case <-ctx.Done():
			b.t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func (b *backend) url() string { return b.URL + "/base?x=1" }

// deliver runs a deliverer until the test ends or stop is called.
func (w *world) deliver() (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := Run(ctx, Config{
			Log: w.log, View: w.view, Outbound: outbound.Policy{Operator: sandbox.Operator{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}},
			Backoff: 20 * time.Millisecond, Timeout: 3 * time.Second, Tick: 20 * time.Millisecond,
		})
		if err != nil {
			w.t.Errorf("deliver: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

// A backend that fails in every way gets each message, in order, by requests that are the same again.
func TestEveryMessageArrivesInOrder(t *testing.T) {
	w, b := newWorld(t), newBackend(t)
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect to another host was followed") }))
	defer private.Close()
	b.answer = func(n int, rw http.ResponseWriter, _ *http.Request) bool {
		switch n {
		case 1:
			rw.WriteHeader(http.StatusInternalServerError)
		case 2:
			rw.WriteHeader(http.StatusForbidden)
		case 3:
			rw.Header().Set("Content-Length", "100")
			rw.Write([]byte("half"))
			panic(http.ErrAbortHandler)
		case 4:
			rw.Header().Set("Location", strings.Replace(private.URL, "127.0.0.1", "127.0.0.2", 1))
			rw.WriteHeader(http.StatusPermanentRedirect)
		case 5:
			rw.Header().Set("Location", "/elsewhere")
			rw.WriteHeader(http.StatusFound) // would be a GET
		default:
			return true
		}
		return false
	}
	k := w.conversation("ses_1", b.url(), 1)
	k.says("client: one", "two", "three")
	w.deliver()
	b.want(w.ctx, "client: one", "runtime: two", "runtime: three")
	k.says("client: four", "five")
	b.want(w.ctx, "client: one", "runtime: two", "runtime: three", "client: four", "runtime: five")
}

// A deliverer that ends, and its successor, lose nothing. A dead backend delays no other conversation.
func TestAnotherDelivererContinues(t *testing.T) {
	w, b, dead := newWorld(t), newBackend(t), newBackend(t)
	dead.answer = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return false
	}
	k := w.conversation("ses_1", b.url(), 1)
	w.conversation("ses_2", dead.url(), 1).says("lost")
	k.says("one")
	stop := w.deliver()
	b.want(w.ctx, "runtime: one")
	stop()
	k.says("two")
	w.deliver()
	b.want(w.ctx, "runtime: one", "runtime: two")
	k.end()
	next := w.conversation("ses_1", b.url(), 2)
	next.says("client: three")
	b.want(w.ctx, "runtime: one", "runtime: two", "client: three")
}

// The messages of a generation wait for those of the one before, and two deliverers send each once
// unless one dies.
func TestGenerationsAreInOrder(t *testing.T) {
	w, b := newWorld(t), newBackend(t)
	first, second := w.conversation("ses_1", b.url(), 1), w.conversation("ses_1", b.url(), 2)
	second.says("three")
	w.deliver()
	w.deliver()
	first.says("one", "client: two")
	first.end()
	b.want(w.ctx, "runtime: one", "client: two", "runtime: three")
}

// A lost part of a record is skipped up to the next whole message.
func TestFeedContinuesAfterAGap(t *testing.T) {
	f := newFeed(3, 0)
	data := frame.Append(nil, frame.Text, []byte("one"))
	wrote := func(seq process.Seq, at int, b []byte) *process.Event {
		return &process.Event{Seq: seq, Body: process.Wrote{Stream: process.Stdout, Offset: uint64(at), Data: b}}
	}
	all, err := f.add(wrote(1, 0, data))
	if err != nil || len(all) != 1 || *all[0].Data != "one" || all[0].after != 0 || all[0].ID != "3.5" && all[0].offset != uint64(len(data)) {
		t.Fatalf("%+v, %v", all, err)
	}
	rest := append([]byte("rest\x00"), frame.Append(nil, frame.Binary, []byte{0, 0xff})...)
	all, err = f.add(wrote(9, 100, rest))
	if err == nil || len(all) != 1 || all[0].Type != "binary" || all[0].Base64 != "AP8=" || all[0].offset != uint64(100+len(rest)) || all[0].after != 8 {
		t.Errorf("%+v, %v", all, err)
	}
}

// E-048, E-064: a backend that returns the header in an invalid response does not get it into the log.
func TestErrorsQuoteNothing(t *testing.T) {
	for _, response := range []string{"%s\r\n\r\n", "HTTP/1.1 200 OK\r\n%s\r\n\r\n", "HTTP/1.1 %s OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n"} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				fmt.Fprintf(conn, response, r.Header.Get("Authorization"))
				conn.Close()
			}
		}))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "canary")
		resp, err := s.Client().Do(req)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%q is a valid response", response)
		} else if got := describe(err, time.Second); strings.Contains(got, "canary") || got == "" {
			t.Errorf("%q: %s", response, got)
		}
		req, err = http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err = http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Error("the certificate is accepted")
		} else if got := describe(err, time.Second); !strings.Contains(got, "certificate") {
			t.Errorf("an unknown authority: %s", got)
		}
		s.Close()
	}
}

// The output of an agent has no frames: each piece is a message.
func TestFeedOfAnAgent(t *testing.T) {
	f := newFeed(1, 2)
	f.plain = true
	all, err := f.add(&process.Event{Seq: 4, Body: process.Wrote{Stream: process.Stdout, Offset: 0, Data: []byte("seen")}})
	if err != nil || len(all) != 1 || *all[0].Data != "en" || all[0].ID != "1.4" || all[0].From != "agent" || all[0].Type != "output" || all[0].after != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	all, err = f.add(&process.Event{Seq: 5, Body: process.Wrote{Stream: process.Stderr, Offset: 0, Data: []byte("x")}})
	if err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
