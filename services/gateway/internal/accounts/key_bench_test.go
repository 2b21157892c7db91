package accounts

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// BenchmarkKey is the check of a user's key in each request.
func BenchmarkKey(b *testing.B) {
	log := eventstest.Open(b, eventstest.Start(b))
	view := eventstest.View(b, log)
	secret := catalog.NewUserKey()
	if err := log.IssueKey(b.Context(), catalog.UserKeyOf("tenant", secret, time.Now())); err != nil {
		b.Fatal(err)
	}
	if err := view.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	a := New(core.New(core.Config{Log: log, View: view, Sealer: eventstest.Ring(b, log)}))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := a.Key(b.Context(), secret); !ok {
			b.Fatal("the key is unknown")
		}
	}
}
