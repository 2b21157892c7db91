package catalog_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
)

// Events of a missing record, or of another tenant's, are omitted.
func TestMissingLifecycleEventsAreOmitted(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	id := sandbox.NewID()
	rev, err := log.AppendSandbox(t.Context(), "t", id, 0, 1, sandbox.Requested{Template: "base"}, sandbox.Placed{}, sandbox.Running{})
	if err != nil {
		t.Fatal(err)
	}
	at := []webhook.Position{webhook.At(rev, 2), webhook.At(rev, 0), webhook.At(rev+5, 0)}
	got, err := log.LifecycleEvents(t.Context(), "t", at)
	if err != nil || len(got) != 1 || got[0].Ref != (webhook.Ref{Sandbox: id, Position: at[0]}) || got[0].Type != webhook.Created {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := log.LifecycleEvents(t.Context(), "other", at); err != nil || len(got) != 0 {
		t.Errorf("another tenant's: %+v, %v", got, err)
	}
}

// A webhook survives a round trip. The cursor and the redeliveries are stored separately,
// each under compare-and-append.
func TestWebhookRoundTrip(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	w := webhook.Webhook{
		ID: webhook.NewID(), Tenant: "t", Name: "n", URL: "https://example.com", Enabled: true, Types: webhook.Types(),
		Secret: "\xff\x00", Created: time.Unix(1, 2), From: webhook.At(3, 4),
	}
	rev, err := log.PutWebhook(t.Context(), &w)
	if err != nil {
		t.Fatal(err)
	}
	again := webhook.Redeliveries{Events: []webhook.Ref{{Sandbox: "i1", Position: 5}}}
	cursor := webhook.Cursor{At: 7, Holder: "h", Attempts: 1, Done: 2, GivenUp: 3}
	if _, err := log.PutRedeliveries(t.Context(), "t", w.ID, &again); err != nil {
		t.Fatal(err)
	}
	if _, err := log.PutCursor(t.Context(), "t", w.ID, &cursor); err != nil {
		t.Fatal(err)
	}
	cursor.Holder = "other"
	if _, err := log.PutCursor(t.Context(), "t", w.ID, &cursor); !kind.Is(err, kind.Conflict) {
		t.Errorf("a cursor with an old rev: %v", err)
	}
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, ok := view.Webhook("t", w.ID)
	if !ok || got.Rev != rev || got.Name != w.Name || got.URL != w.URL || !got.Enabled || got.Secret != w.Secret || !got.Created.Equal(w.Created) ||
		got.From != w.From || len(got.Types) != len(w.Types) {
		t.Errorf("%+v, want %+v", got.Webhook, w)
	}
	if c := got.Cursor; c.At != 7 || c.Holder != "h" || c.Attempts != 1 || c.Done != 2 || c.GivenUp != 3 || len(got.Redeliveries.Events) != 1 {
		t.Errorf("%+v %+v", c, got.Redeliveries)
	}
	if _, ok := view.Webhook("other", w.ID); ok {
		t.Error("another tenant can read it")
	}
}

// Totals are counters: they do not shrink when a webhook is removed, nor when the view
// drops it.
func TestWebhookTotalsDoNotShrink(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	w := webhook.Webhook{ID: webhook.NewID(), Tenant: "t", Name: "n", Types: webhook.Types()}
	rev, err := log.PutWebhook(t.Context(), &w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.PutCursor(t.Context(), "t", w.ID, &webhook.Cursor{Attempts: 6, Done: 2, GivenUp: 1}); err != nil {
		t.Fatal(err)
	}
	w.Removed, w.Rev = true, rev
	if _, err := log.PutWebhook(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := catalog.HookTotals{Attempts: 6, Done: 2, GivenUp: 1}
	if got := view.HookTotals(); got != want {
		t.Errorf("after it was removed: %+v, want %+v", got, want)
	}
	view.Forget(time.Now().Add(1000 * time.Hour))
	if _, ok := view.Webhook("t", w.ID); ok {
		t.Error("the view has not dropped it")
	}
	if got := view.HookTotals(); got != want {
		t.Errorf("after it was dropped: %+v, want %+v", got, want)
	}
}
