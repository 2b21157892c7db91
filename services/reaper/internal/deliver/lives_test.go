package deliver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
)

// run writes the catalog's entries of a process of a sandbox: its start and, if x is set, its end.
func (w *world) run(tenant string, id process.ID, x *process.Exit) {
	w.t.Helper()
	s := process.Summary{ID: id, Tenant: tenant, Host: "h", PID: 7, Started: time.Unix(100, 0), Spec: process.Spec{Cmd: "true", Env: map[string]string{"K": "canary"}}}
	rev, err := w.log.PutSummary(w.ctx, &s, 0)
	w.ok(err)
	if x != nil {
		s.Ended, s.Exit, s.Last, s.Spec.Env = time.Unix(102, 0), x, 5, nil
		_, err = w.log.PutSummary(w.ctx, &s, rev)
		w.ok(err)
	}
}

func code(n int32) *int32 { return &n }

// life is an event of a process as a receiver in the format standard gets it.
type life struct {
	Type webhook.Type `json:"type"`
	Data struct {
		ID      string `json:"id"`
		Sandbox string `json:"sandbox_id"`
		Data    struct {
			Process struct {
				ID       process.ID    `json:"process_id"`
				Cmd      string        `json:"cmd"`
				Code     *int32        `json:"exit_code"`
				Signal   int32         `json:"signal"`
				Cause    process.Cause `json:"cause"`
				Duration int64         `json:"duration_ms"`
			} `json:"process"`
		} `json:"event_data"`
	} `json:"data"`
}

// lifeSink is a receiver in the format standard, of single events and of batches.
type lifeSink struct {
	*httptest.Server
	mu       sync.Mutex
	refuse   bool
	refused  int
	requests int
	got      []life
	more     chan struct{} // capacity 1
}

func newLifeSink(t *testing.T) *lifeSink {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhookRaw([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	s := &lifeSink{more: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // the deliverer was interrupted
		}
		if err := verifier.Verify(raw, r.Header); err != nil {
			t.Errorf("signature: %v", err)
		}
		var batch struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(raw, &batch); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		events := make([]life, 1)
		into := any(&events[0])
		if batch.Type == webhook.TypeBatch {
			raw, into = batch.Data, &events
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		s.take(w, events)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *lifeSink) take(w http.ResponseWriter, events []life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.refuse {
		s.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		s.got = append(s.got, events...)
	}
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// first returns the events without repetitions once enough is true for them.
func (s *lifeSink) first(w *world, enough func(all []life) bool) (out []life, requests int) {
	w.t.Helper()
	for {
		s.mu.Lock()
		out = nil
		seen := make(map[string]bool)
		for _, e := range s.got {
			if !seen[e.Data.ID] {
				out = append(out, e)
			}
			seen[e.Data.ID] = true
		}
		ok := enough(out)
		requests = s.requests
		s.mu.Unlock()
		if ok {
			return out, requests
		}
		select {
		case <-s.more:
		case <-w.ctx.Done():
			w.t.Fatalf("%d events came", len(out))
		}
	}
}

func (s *lifeSink) set(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// processes returns n ids of processes of a sandbox.
func processes(sbx sandbox.ID, n int) []process.ID {
	out := make([]process.ID, n)
	for i := range out {
		out[i] = process.IDOf(fmt.Sprintf("01jd%022d", i), sbx)
	}
	return out
}

// of returns the types of the events of a process.
func of(all []life, id process.ID) (out []webhook.Type) {
	for _, e := range all {
		if e.Data.Data.Process.ID == id {
			out = append(out, e.Type)
		}
	}
	return out
}

func TestProcessesAreDelivered(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	s := newLifeSink(t)
	w.hookOf("a", s.URL, webhook.FormatStandard)
	w.deliver(w.config())
	ids := processes(w.sandbox("a", 0), 5)
	w.run("b", process.IDOf(ids[0].Token(), "other"), &process.Exit{Code: code(0), Cause: process.CauseExited})
	w.run("a", ids[0], &process.Exit{Code: code(3), Cause: process.CauseExited})
	w.run("a", ids[1], &process.Exit{Signal: 9, Cause: process.CauseKilled})
	w.run("a", ids[2], &process.Exit{Cause: process.CauseHostLost})
	w.run("a", ids[3], nil)
	got, _ := s.first(w, func(all []life) bool { return len(all) == 8 })
	for i, want := range [][]webhook.Type{
		{webhook.ProcessStarted, webhook.ProcessExited}, {webhook.ProcessStarted, webhook.ProcessExited},
		{webhook.ProcessStarted, webhook.ProcessLost}, {webhook.ProcessStarted}, nil,
	} {
		if types := of(got, ids[i]); !slices.Equal(types, want) {
			t.Errorf("process %d: got %v, want %v", i, types, want)
		}
	}
	for _, e := range got {
		p := e.Data.Data.Process
		switch {
		case e.Type == webhook.ProcessExited && p.ID == ids[0] && (*p.Code != 3 || p.Duration != 2000 || p.Cmd != "true"),
			e.Type == webhook.ProcessExited && p.ID == ids[1] && (p.Code != nil || p.Signal != 9 || p.Cause != process.CauseKilled):
			t.Errorf("got %+v", e)
		}
	}
}

// A receiver that refuses everything for a while, and a deliverer that is replaced meanwhile, lose no
// event of a process.
func TestReceiverThatWasDownLosesNoProcess(t *testing.T) {
	for _, batch := range []int{0, 100} {
		t.Run(strconv.Itoa(batch), func(t *testing.T) {
			w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
			s := newLifeSink(t)
			s.set(true)
			h := w.hookOf("a", s.URL, webhook.FormatStandard)
			h.Batch, h.Types = batch, []webhook.Type{webhook.ProcessStarted, webhook.ProcessExited}
			_, err := w.log.PutWebhook(w.ctx, &h)
			w.ok(err)
			w.ok(w.view.Sync(w.ctx))
			stop := w.deliver(w.config())
			ids := processes("i1", 300)
			for i, id := range ids {
				w.run("a", id, &process.Exit{Code: code(0), Cause: process.CauseExited})
				if i == len(ids)/2 {
					stop()
					stop = w.deliver(w.config())
				}
			}
			w.attempts(&h, func(all []webhook.Attempt) bool { return len(all) > 3 })
			s.set(false)
			got, requests := s.first(w, func(all []life) bool { return len(all) >= 2*len(ids) })
			for _, id := range ids {
				if types := of(got, id); !slices.Equal(types, []webhook.Type{webhook.ProcessStarted, webhook.ProcessExited}) {
					t.Fatalf("process %s: %v", id, types)
				}
			}
			if accepted := requests - s.refused; batch > 1 && accepted > 20 {
				t.Errorf("%d requests for %d events", accepted, len(got))
			}
		})
	}
}

// A batch has no more bytes than usual receivers accept, however long the commands are.
func TestBatchHasALimitOfBytes(t *testing.T) {
	w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
	s := newLifeSink(t)
	limited := httptest.NewServer(http.MaxBytesHandler(s.Config.Handler, maxBatchBytes*5/4))
	t.Cleanup(limited.Close)
	h := w.hookOf("a", limited.URL, webhook.FormatStandard)
	h.Batch, h.Types = webhook.MaxBatch, []webhook.Type{webhook.ProcessStarted}
	ids := processes("i1", 700)
	for _, id := range ids {
		_, err := w.log.PutSummary(w.ctx, &process.Summary{
			ID: id, Tenant: "a", Host: "h", PID: 7, Started: time.Unix(100, 0), Spec: process.Spec{Cmd: "c", Args: []string{strings.Repeat("x", 4<<10)}},
		}, 0)
		w.ok(err)
	}
	_, err := w.log.PutWebhook(w.ctx, &h)
	w.ok(err)
	w.ok(w.view.Sync(w.ctx))
	w.deliver(w.config())
	if _, requests := s.first(w, func(all []life) bool { return len(all) == len(ids) }); requests > 10 {
		t.Errorf("%d requests", requests)
	}
}

// A receiver that refuses a batch gets its parts: a collector never misses other events because of one that it
// cannot accept, and one with a lower limit than ours gets all of them. It refuses at most about every second
// request, and a division is no attempt to send a single event.
func TestRefusedBatchIsDivided(t *testing.T) {
	ids := processes("i1", 100)
	for _, tt := range []struct {
		format webhook.Format
		status int // for batches of more than seven events, and in OTLP for those with the bad process
		bad    process.ID
	}{{webhook.FormatOTLP, http.StatusBadRequest, ids[40]}, {webhook.FormatStandard, http.StatusRequestEntityTooLarge, ""}} {
		t.Run(string(tt.format), func(t *testing.T) {
			w := newWorld(t, eventstest.Open(t, eventstest.Start(t)))
			var mu sync.Mutex
			got := make(map[string]bool)
			accepted, refused := 0, 0
			sink := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				raw, err := io.ReadAll(r.Body)
				if err != nil {
					return // the deliverer was interrupted
				}
				named := slices.DeleteFunc(slices.Clone(ids), func(id process.ID) bool { return !strings.Contains(string(raw), string(id)) })
				mu.Lock()
				defer mu.Unlock()
				if len(named) > 7 || slices.Contains(named, tt.bad) {
					refused++
					rw.WriteHeader(tt.status)
					return
				}
				accepted++
				for _, id := range named {
					got[string(id)] = true
				}
			}))
			t.Cleanup(sink.Close)
			h := w.hookOf("a", sink.URL, tt.format)
			h.Batch, h.Types = 50, []webhook.Type{webhook.ProcessStarted}
			_, err := w.log.PutWebhook(w.ctx, &h)
			w.ok(err)
			for _, id := range ids {
				w.run("a", id, nil)
			}
			w.ok(w.view.Sync(w.ctx))
			w.deliver(w.config())
			var givenUp uint64
			if tt.bad != "" {
				givenUp = 1
			}
			w.cursor(&h, func(x *catalog.Hook) bool {
				return x.Cursor.Done == uint64(len(ids))-givenUp && x.Cursor.GivenUp == givenUp
			})
			mu.Lock()
			defer mu.Unlock()
			if len(got) != len(ids)-int(givenUp) || got[string(tt.bad)] {
				t.Errorf("%d processes came", len(got))
			}
			if tt.bad == "" && refused > accepted+3 { // 50, 25 and 12 events first
				t.Errorf("%d requests were refused, %d accepted", refused, accepted)
			}
			for _, a := range w.attempts(&h, func([]webhook.Attempt) bool { return true }) {
				if a.Number != 1 {
					t.Errorf("attempt %d with %d events: status %d", a.Number, a.Events, a.Status)
				}
			}
		})
	}
}
