package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
)

const newHook = `{"name":"n","url":"https://example.com/hook","events":["sandbox.lifecycle.created","sandbox.lifecycle.killed"],"signatureSecret":"the secret"}`

// decodeWant decodes the body of a response with the given code.
func (a answer) decodeWant(t *testing.T, code int, v any) {
	t.Helper()
	if a.code != code {
		t.Fatalf("%d %s, want %d", a.code, a.body, code)
	}
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

type hookBody struct {
	ID        string    `json:"id"`
	TeamID    string    `json:"teamId"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	URL       string    `json:"url"`
	Enabled   bool      `json:"enabled"`
	Events    []string  `json:"events"`
	Format    string    `json:"format"`
	Batch     int       `json:"batch"`
	Cursor    string    `json:"cursor"`
}

// The format of deliveries is that of E2B unless another one is chosen, and can change.
func TestWebhookFormat(t *testing.T) {
	f := newFixture(t)
	var made hookBody
	f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	if made.Format != "e2b" {
		t.Errorf("format of a new webhook: %q", made.Format)
	}
	path := "/events/webhooks/" + made.ID
	for _, format := range []string{"standard", "otlp", "e2b"} {
		f.do("PATCH", path, `{"format":"`+format+`"}`).decodeWant(t, 200, &made)
		if made.Format != format || made.Name != "n" {
			t.Errorf("changed to %s: %+v", format, made)
		}
	}
	f.do("PATCH", path, `{"format":"xml"}`).wantError(t, "unknown format", 400)
}

func TestBatchOfWebhook(t *testing.T) {
	f := newFixture(t)
	var made hookBody
	f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	path := "/events/webhooks/" + made.ID
	if made.Batch != 1 {
		t.Errorf("batch of a new webhook: %d", made.Batch)
	}
	f.do("PATCH", path, `{"batch":10}`).wantError(t, "E2B has no batches", 400)
	f.do("PATCH", path, `{"format":"standard","batch":1001}`).wantError(t, "too many", 400)
	f.do("PATCH", path, `{"format":"standard","batch":0}`).wantError(t, "too few", 400)
	f.do("PATCH", path, `{"format":"standard","batch":1000,"events":["process.started","process.exited"]}`).decodeWant(t, 200, &made)
	if made.Batch != 1000 || len(made.Events) != 2 {
		t.Errorf("got %+v", made)
	}
	f.do("PATCH", path, `{"format":"e2b"}`).wantError(t, "batches in E2B's format", 400)
}

// The lag has the ends of processes that were not delivered: no deliverer runs here.
func TestLagOfWebhookHasProcesses(t *testing.T) {
	f := newFixture(t)
	lag := func(what string, want ...string) {
		t.Helper()
		if err := f.view.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := f.do("GET", "/metrics", "").body
		for _, line := range want {
			if !strings.Contains(got, "\n"+line+"\n") {
				t.Errorf("%s: no line %s", what, line)
			}
		}
	}
	var made hookBody
	f.do("POST", "/events/webhooks", strings.Replace(newHook, "sandbox.lifecycle.created", "process.exited", 1)).decodeWant(t, 201, &made)
	m := f.create(base)
	lag("before", "millrace_webhook_lag_events 0", "millrace_webhooks_lagging 0")
	for range 3 {
		f.run(m, "echo", "x")
	}
	lag("three processes", "millrace_webhook_lag_events 3", "millrace_webhooks_lagging 1")
	f.do("PATCH", "/events/webhooks/"+made.ID, `{"events":["process.lost"]}`).decodeWant(t, 200, &made)
	lag("of another type", "millrace_webhook_lag_events 0", "millrace_webhooks_lagging 0")
}

// A webhook continues after a cursor that it returned before.
func TestReplayAfterACursor(t *testing.T) {
	f := newFixture(t)
	var made hookBody
	f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	path := "/events/webhooks/" + made.ID
	from := f.hook(made.ID)
	later := webhook.Cursor{At: from.From + 1000, Processes: from.FromProcesses + 1000, Holder: "d"}
	if _, err := f.log.PutCursor(t.Context(), "default", webhook.ID(made.ID), &later); err != nil {
		t.Fatal(err)
	}
	f.do("POST", path+"/redeliver", `{"cursor":"`+made.Cursor+`"}`).want(t, "replay", 202, "")
	if h := f.hook(made.ID); h.Positions() != from.Positions() || h.Cursor.Holder != "" {
		t.Errorf("got %+v, want %+v", h.Positions(), from.Positions())
	}
	f.do("POST", path+"/redeliver", `{"cursor":"`+later.Positions().String()+`"}`).want(t, "replay what is ahead", 202, "")
	if h := f.hook(made.ID); h.Positions() != from.Positions() {
		t.Errorf("a replay moved the cursor ahead: %+v", h.Positions())
	}
	for _, bad := range []string{`{"cursor":"x"}`, `{"cursor":"1-2-3"}`, `{"cursor":"1-2","since":"2020-01-01T00:00:00Z"}`} {
		f.do("POST", path+"/redeliver", bad).wantError(t, bad, 400)
	}
}

// Only its tenant can create, read, change and delete a webhook, whose secret is never shown.
func TestWebhookConfiguration(t *testing.T) {
	f := newFixture(t)
	var made, got hookBody
	f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	if made.TeamID != "default" || made.Name != "n" || !made.Enabled || made.CreatedAt.IsZero() || len(made.Events) != 2 {
		t.Errorf("made: %+v", made)
	}
	path := "/events/webhooks/" + made.ID
	f.do("PATCH", path, `{"enabled":false,"url":"http://example.com/","events":["sandbox.lifecycle.paused"]}`).decodeWant(t, 200, &got)
	if got.Enabled || got.URL != "http://example.com/" || !slices.Equal(got.Events, []string{"sandbox.lifecycle.paused"}) || got.Name != "n" {
		t.Errorf("changed: %+v", got)
	}
	var all []hookBody
	f.do("GET", "/events/webhooks", "").decodeWant(t, 200, &all)
	if len(all) != 1 || all[0].ID != made.ID {
		t.Errorf("listed: %+v", all)
	}
	for _, a := range []answer{f.do("GET", path, ""), f.do("GET", "/events/webhooks", ""), f.do("PATCH", path, `{"signatureSecret":"the secret"}`)} {
		if a.code != 200 || strings.Contains(a.body, "secret") {
			t.Errorf("%d %s", a.code, a.body)
		}
	}
	f.do("GET", "/events/webhooks", "", "X-Api-Key", bobKey).want(t, "another tenant's list", 200, "[]")
	for _, m := range []string{"GET", "PATCH", "DELETE"} {
		f.do(m, path, "{}", "X-Api-Key", bobKey).wantError(t, m+" by another tenant", 404)
	}
	f.do("GET", path+"/deliveries", "", "X-Api-Key", bobKey).wantError(t, "deliveries by another tenant", 404)
	f.do("POST", path+"/redeliver", `{"since":"2020-01-01T00:00:00Z"}`, "X-Api-Key", bobKey).wantError(t, "replay by another tenant", 404)
	f.do("DELETE", path, "").want(t, "delete", 200, "")
	f.do("GET", path, "").wantError(t, "deleted", 404)
	f.do("GET", "/events/webhooks", "").want(t, "empty list", 200, "[]")
	if h, ok := f.view.Webhook("default", webhook.ID(made.ID)); !ok || h.Secret != "" || h.URL != "" {
		t.Errorf("left after delete: %+v %v", h, ok)
	}
}

func TestInvalidWebhooksAreRejected(t *testing.T) {
	f := newFixture(t)
	for _, body := range []string{
		`{}`, `[]`, `x`,
		strings.Replace(newHook, `"name":"n",`, "", 1),
		strings.Replace(newHook, `"n"`, `""`, 1),
		strings.Replace(newHook, `,"signatureSecret":"the secret"`, "", 1),
		strings.Replace(newHook, "the secret", "", 1),
		strings.Replace(newHook, "lifecycle.created", "lifecycle.born", 1),
		strings.Replace(newHook, `["sandbox.lifecycle.created","sandbox.lifecycle.killed"]`, "[]", 1),
		strings.Replace(newHook, "https://example.com", "file://", 1),
		strings.Replace(newHook, "https://example.com", "http://127.0.0.1", 1),
		strings.Replace(newHook, "https://example.com", "http://[::1]:80", 1),
		strings.Replace(newHook, "https://example.com", "http://169.254.169.254", 1),
		strings.Replace(newHook, "https://example.com", "https://user:pass@example.com", 1),
	} {
		f.do("POST", "/events/webhooks", body).wantError(t, body, 400)
	}
	for _, id := range []string{"x", "*", "%3E", "00000000-0000-4000-8000-000000000000"} {
		f.do("GET", "/events/webhooks/"+id, "").wantError(t, id, 404)
	}
	var made hookBody
	for range 20 {
		f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	}
	f.do("POST", "/events/webhooks", newHook).wantError(t, "the twenty-first", 409)
	f.do("POST", "/events/webhooks", newHook, "X-Api-Key", bobKey).decodeWant(t, 201, &made)
}

// Creating and deleting webhooks forever does not fill the disk.
func TestDeletedWebhooksAreBounded(t *testing.T) {
	f := newFixture(t)
	for range 1000 {
		w := webhook.Webhook{ID: webhook.NewID(), Tenant: "default", Removed: true}
		if _, err := f.log.PutWebhook(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
	}
	f.do("POST", "/events/webhooks", newHook).wantError(t, "after a thousand", 409)
	var made hookBody
	f.do("POST", "/events/webhooks", newHook, "X-Api-Key", bobKey).decodeWant(t, 201, &made)
}

type eventBody struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	SandboxID string          `json:"sandboxId"`
	TeamID    string          `json:"sandboxTeamId"`
	Data      json.RawMessage `json:"eventData"`
}

// write appends to a sandbox's record, all at once: the test's host reacts to intermediate states.
func (f *fixture) write(tenant string, id sandbox.ID, bodies ...sandbox.Body) {
	f.t.Helper()
	st, _ := f.view.Sandbox(id)
	if _, err := f.log.AppendSandbox(f.t.Context(), tenant, id, st.Rev, st.Seq+1, bodies...); err != nil {
		f.t.Fatal(err)
	}
	if err := f.view.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) events(query string, headers ...string) []eventBody {
	f.t.Helper()
	var out []eventBody
	f.do("GET", "/events/sandboxes"+query, "", headers...).decodeWant(f.t, 200, &out)
	return out
}

// Events are listed in pages, newest or oldest first, by type, for one sandbox or all of a tenant's,
// including ended sandboxes.
func TestEventsAreListed(t *testing.T) {
	f := newFixture(t)
	var ids []sandbox.ID
	for i := range 4 {
		tenant := "default"
		if i == 3 {
			tenant = "bob"
		}
		id := sandbox.NewID()
		f.write(tenant, id, sandbox.Requested{Template: "base", Metadata: map[string]string{"n": fmt.Sprint(i)}},
			sandbox.Placed{Host: "x"}, sandbox.Running{}, sandbox.DeadlineSet{Deadline: time.Unix(1, 0)})
		f.write(tenant, id, sandbox.Stopping{Cause: "user"}, sandbox.Destroyed{Cause: "user"})
		ids = append(ids, id)
	}
	all := f.events("?orderAsc=true&limit=100")
	var types []string
	for _, e := range all {
		types = append(types, e.Type[len("sandbox.lifecycle."):])
		if e.TeamID != "default" {
			t.Errorf("the list contains %+v", e)
		}
	}
	if want := slices.Repeat([]string{"created", "updated", "killed"}, 3); !slices.Equal(types, want) {
		t.Fatalf("types %v, want %v", types, want)
	}
	newest := f.events("?limit=2&offset=1")
	if len(newest) != 2 || newest[0].ID != all[7].ID || newest[1].ID != all[6].ID {
		t.Errorf("the second and third newest: %+v, want %+v", newest, all[6:8])
	}
	if got := f.events("?types=sandbox.lifecycle.killed&types=sandbox.lifecycle.created&limit=3"); len(got) != 3 || got[0].ID != all[8].ID || got[1].ID != all[6].ID || got[2].ID != all[5].ID {
		t.Errorf("created and killed: %+v", got)
	}
	if got := f.events("?offset=9"); len(got) != 0 {
		t.Errorf("after the last page: %+v", got)
	}
	one := f.events("/" + string(ids[1]))
	if len(one) != 3 || one[0].ID != all[5].ID || one[2].ID != all[3].ID {
		t.Errorf("of one sandbox: %+v", one)
	}
	if got := f.events("/" + string(ids[1]) + "?orderAsc=true&limit=1&offset=1"); len(got) != 1 || got[0].ID != all[4].ID ||
		string(got[0].Data) != `{"sandbox_metadata":{"n":"1"},"set_timeout":"1970-01-01T00:00:01Z"}` {
		t.Errorf("its second event: %+v", got)
	}
	if got := f.events("/"+string(ids[3]), "X-Api-Key", bobKey); len(got) != 3 {
		t.Errorf("bob's: %+v", got)
	}
	f.do("GET", "/events/sandboxes/"+string(ids[3]), "").wantError(t, "another tenant's sandbox", 404)
	f.do("GET", "/events/sandboxes/"+string(sandbox.NewID()), "").wantError(t, "an unknown sandbox", 404)
	for _, bad := range []string{"?limit=0", "?limit=101", "?offset=-1", "?orderAsc=maybe", "?types=x"} {
		f.do("GET", "/events/sandboxes"+bad, "").wantError(t, bad, 400)
	}
}

// Deliveries are listed in pages, and the event of a delivery can be sent again.
func TestDeliveriesAreListed(t *testing.T) {
	f := newFixture(t)
	var made hookBody
	f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	path := "/events/webhooks/" + made.ID
	f.do("GET", path+"/deliveries", "").want(t, "no delivery", 200, "[]")
	var ids []string
	for i := range 7 {
		a := webhook.Attempt{
			ID: fmt.Sprintf("d%d", i), EventID: fmt.Sprintf("e%d", i), Type: webhook.Created, Number: 1, Time: time.Unix(int64(i), 0),
			Ref: webhook.Ref{Sandbox: "i1", Position: webhook.At(uint64(i), 0)},
		}
		if i%2 == 1 {
			a.Error, a.Status, a.Last = "receiver responded with status 500", 500, i == 5
		}
		if err := f.log.AppendAttempt(t.Context(), "default", webhook.ID(made.ID), &a); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	read := func(query string) (got []string) {
		for cursor := ""; ; {
			a := f.do("GET", path+"/deliveries?limit=2&"+query+cursor, "")
			var page []struct{ ID string }
			a.decodeWant(t, 200, &page)
			for _, d := range page {
				got = append(got, d.ID)
			}
			if cursor = "&cursor=" + a.header.Get("X-Next-Cursor"); cursor == "&cursor=" {
				return got
			}
		}
	}
	if got := read("orderAsc=true"); !slices.Equal(got, ids) {
		t.Errorf("oldest first: %v", got)
	}
	if got := read("deliveryStatus=failed"); !slices.Equal(got, []string{"d5", "d3", "d1"}) {
		t.Errorf("failed: %v", got)
	}
	slices.Reverse(ids)
	if got := read(""); !slices.Equal(got, ids) {
		t.Errorf("newest first: %v", got)
	}
	if got := read("start=1970-01-01T00:00:02Z&end=1970-01-01T00:00:04Z"); !slices.Equal(got, []string{"d3", "d2"}) {
		t.Errorf("between two times: %v", got)
	}
	f.do("GET", path+"/deliveries/d5", "").want(t, "one", 200,
		`{"id":"d5","eventId":"e5","eventType":"sandbox.lifecycle.created","sandboxId":"i1","attempt":1,"status":"failed","final":true,`+
			`"statusCode":500,"error":"receiver responded with status 500","responseBody":"","url":"","timestamp":"1970-01-01T00:00:05Z","durationMs":0}`)
	f.do("GET", path+"/deliveries/none", "").wantError(t, "an unknown delivery", 404)
	f.do("POST", path+"/deliveries/d5/redeliver", "").want(t, "redeliver", 202, `{"eventId":"e5"}`)
	f.do("POST", path+"/deliveries/d5/redeliver", "").want(t, "redeliver twice", 202, `{"eventId":"e5"}`)
	f.do("POST", path+"/deliveries/d1/redeliver", "").want(t, "redeliver another", 202, `{"eventId":"e1"}`)
	h := f.hook(made.ID)
	if want := []webhook.Ref{{Sandbox: "i1", Position: webhook.At(5, 0)}, {Sandbox: "i1", Position: webhook.At(1, 0)}}; !slices.Equal(h.Redeliveries.Events, want) {
		t.Errorf("to be sent again: %+v, want %+v", h.Redeliveries.Events, want)
	}
	f.do("PATCH", path, `{"enabled":false}`).want(t, "disable", 200, "")
	f.do("POST", path+"/deliveries/d3/redeliver", "").wantError(t, "redeliver to a disabled webhook", 409)
}

func (f *fixture) hook(id string) catalog.Hook {
	f.t.Helper()
	if err := f.view.Sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	h, _ := f.view.Webhook("default", webhook.ID(id))
	return h
}

// A replay moves the cursor back, also to before the webhook's creation, and takes a claim away. A
// webhook that is enabled again does not get the events in between.
func TestReplayAndEnable(t *testing.T) {
	f := newFixture(t)
	id := sandbox.NewID()
	f.write("default", id, sandbox.Requested{Template: "base"}, sandbox.Placed{Host: "x"}, sandbox.Running{})
	var made hookBody
	f.do("POST", "/events/webhooks", newHook).decodeWant(t, 201, &made)
	path := "/events/webhooks/" + made.ID
	lag := func() int {
		h := f.hook(made.ID)
		return len(f.view.LifecycleAfter("default", h.After(), h.Receives, 10))
	}
	if n := lag(); n != 0 {
		t.Errorf("%d events before the webhook", n)
	}
	cursor := webhook.Cursor{At: f.hook(made.ID).From, Holder: "d", Done: 3}
	if _, err := f.log.PutCursor(t.Context(), "default", webhook.ID(made.ID), &cursor); err != nil {
		t.Fatal(err)
	}
	f.do("POST", path+"/redeliver", `{"since":"2020-01-01T00:00:00Z"}`).want(t, "replay", 202, "")
	if h := f.hook(made.ID); lag() != 1 || h.Cursor.Holder != "" || h.Cursor.Done != 3 {
		t.Errorf("after a replay %d events wait: %+v", lag(), h.Cursor)
	}
	f.do("POST", path+"/redeliver", `{}`).wantError(t, "replay since never", 400)
	f.do("PATCH", path, `{"enabled":false}`).want(t, "disable", 200, "")
	f.do("PATCH", path, `{"enabled":true}`).want(t, "enable", 200, "")
	if n := lag(); n != 0 {
		t.Errorf("%d events from before it was enabled", n)
	}
}
