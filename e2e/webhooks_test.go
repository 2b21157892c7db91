package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	hookSecret = "a secret of the receiver's"
	hookEnv    = "MILLRACE_WEBHOOK_ALLOW=127.0.0.1"
)

// lifecycleEvent is an event as receivers and lists show it.
type lifecycleEvent struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Sandbox string `json:"sandbox_id"`
}

// hookReceiver records the events that it receives. It verifies signatures as E2B's
// documentation describes.
type hookReceiver struct {
	*httptest.Server
	t testing.TB

	mu    sync.Mutex
	taken []lifecycleEvent
}

func newHookReceiver(t testing.TB, pause time.Duration) *hookReceiver {
	t.Helper()
	r := &hookReceiver{t: t}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, err := io.ReadAll(req.Body)
		if err != nil {
			return // it was killed
		}
		sum := sha256.Sum256([]byte(hookSecret + string(raw)))
		if want := strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="); req.Header.Get("e2b-signature") != want {
			t.Errorf("signature %q, want %q", req.Header.Get("e2b-signature"), want)
		}
		var e lifecycleEvent
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		r.mu.Lock()
		r.taken = append(r.taken, e)
		r.mu.Unlock()
		timer := time.NewTimer(pause) // so that a kill interrupts deliveries
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// first returns the received events without repetitions, and the number with repetitions.
func (r *hookReceiver) first() (out []lifecycleEvent, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range r.taken {
		if !seen[e.ID] {
			out = append(out, e)
		}
		seen[e.ID] = true
	}
	return out, len(r.taken)
}

// register registers the receiver for all events.
func (r *hookReceiver) register(t testing.TB, a *rig.API) string {
	t.Helper()
	var w struct {
		ID string `json:"id"`
	}
	a.Want(t, http.StatusCreated, http.MethodPost, "/events/webhooks", map[string]any{
		"name": "test", "url": r.URL, "signatureSecret": hookSecret, "events": []string{
			"sandbox.lifecycle.created", "sandbox.lifecycle.updated", "sandbox.lifecycle.paused",
			"sandbox.lifecycle.resumed", "sandbox.lifecycle.killed", "sandbox.lifecycle.checkpointed",
		},
	}).Decode(t, &w)
	return w.ID
}

// createAndRemove creates a sandbox, changes its timeout, and removes it: updates + 2 events.
func createAndRemove(t testing.TB, a *rig.API, updates int) string {
	t.Helper()
	box := a.Create(t)
	for range updates {
		a.Want(t, http.StatusNoContent, http.MethodPost, "/sandboxes/"+box.ID+"/timeout", map[string]int{"timeout": 200})
	}
	a.Kill(t, box.ID)
	return box.ID
}

// check waits until all events of the sandboxes have arrived, and compares them with the
// lists.
func (r *hookReceiver) check(t testing.TB, a *rig.API, boxes []string, updates int) {
	t.Helper()
	want := len(boxes) * (updates + 2)
	if !rig.Poll(2*time.Minute, func() bool { got, _ := r.first(); return len(got) >= want }) {
		got, all := r.first()
		t.Fatalf("received %d events of %d, %d with repetitions", len(got), want, all)
	}
	got, all := r.first()
	came := map[string][]string{}
	for _, e := range got {
		came[e.Sandbox] = append(came[e.Sandbox], e.ID)
	}
	for _, box := range boxes {
		var listed []lifecycleEvent
		a.Want(t, http.StatusOK, http.MethodGet, "/events/sandboxes/"+box+"?orderAsc=true&limit=100", nil).Decode(t, &listed)
		var ids []string
		for _, e := range listed {
			ids = append(ids, e.ID)
		}
		if len(ids) != updates+2 || !slices.Equal(came[box], ids) {
			t.Errorf("sandbox %s: received %v\nlisted %v", box, came[box], ids)
		}
	}
	t.Logf("%d events, %d deliveries", len(got), all)
}

// `up` is killed while it delivers: no event is lost, and each sandbox's events arrive in
// order.
func TestWebhooksSurviveKill(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{Env: []string{hookEnv}})
	r := newHookReceiver(t, 20*time.Millisecond)
	id := r.register(t, u.API)
	const updates = 6
	var boxes []string
	for range 3 {
		for range 4 {
			boxes = append(boxes, createAndRemove(t, u.API, updates))
		}
		u.Kill9()
		must(t, u.Restart())
	}
	r.check(t, u.API, boxes, updates)
	pages(t, u.API, len(boxes)*(updates+2))
	if w := u.Want(t, http.StatusOK, http.MethodGet, "/events/webhooks/"+id, nil); strings.Contains(string(w.Body), hookSecret) {
		t.Errorf("the secret is shown: %v", w)
	}
	if !rig.Poll(time.Minute, func() bool { return u.Metrics(t)["millrace_webhook_lag_events"] == 0 }) {
		t.Error("the lag remains")
	}
	if m := u.Metrics(t); m[`millrace_webhook_events_total{result="delivered"}`] < float64(len(boxes)*(updates+2)) {
		t.Errorf("metrics: %v", m)
	}
}

// pages reads all events in pages, forwards and backwards, and checks that each is listed
// once.
func pages(t testing.TB, a *rig.API, want int) {
	t.Helper()
	read := func(query string) (ids []string) {
		for {
			var page []lifecycleEvent
			a.Want(t, http.StatusOK, http.MethodGet, fmt.Sprintf("/events/sandboxes?limit=7&offset=%d&%s", len(ids), query), nil).Decode(t, &page)
			if len(page) == 0 {
				return ids
			}
			for _, e := range page {
				ids = append(ids, e.ID)
			}
		}
	}
	oldest, newest := read("orderAsc=true"), read("")
	slices.Reverse(newest)
	if !slices.Equal(oldest, newest) || len(oldest) != want {
		t.Errorf("%d events oldest first and %d newest first, want %d, in the opposite order", len(oldest), len(newest), want)
	}
	slices.Sort(newest)
	if len(slices.Compact(newest)) != want {
		t.Errorf("an event is listed twice")
	}
}

// Reapers, gateways and NATS servers are killed while events are delivered.
func TestWebhooksSurviveKillInCluster(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{NATS: 3, Gateways: 2, Reapers: 2, Env: []string{hookEnv}})
	r := newHookReceiver(t, 200*time.Millisecond)
	r.register(t, s.APIs[0])
	const updates = 6
	var boxes []string
	for _, name := range []string{"reaper-1", "nats-1", "reaper-2", "gateway-2", "nats-2"} {
		for range 3 {
			boxes = append(boxes, createAndRemove(t, s.APIs[0], updates))
		}
		_, err := s.Crash(name)
		must(t, err)
	}
	r.check(t, s.APIs[0], boxes, updates)
	r.check(t, s.APIs[1], boxes, updates)
}
