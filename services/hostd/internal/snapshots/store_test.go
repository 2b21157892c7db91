package snapshots

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/drivers"
)

// named is a driver with nothing but a name.
type named struct{ drivers.Offer }

func (named) Name() string { return "d" }

// A sandbox can start from a snapshot as soon as the snapshot is stored, although the host's view
// receives it later.
func TestASnapshotIsFoundAsSoonAsItIsStored(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	st := New(Config{
		Dir: t.TempDir(), Host: "h", Log: log, View: eventstest.View(t, eventstest.Open(t, srv)),
		Drivers: drivers.New(drivers.Config{}), Slog: slog.New(slog.DiscardHandler),
	})
	offer := func(context.Context) drivers.Offer { return drivers.Offer{Driver: named{}} }
	for range 100 {
		s := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Tenant: "t", Host: "h", Driver: "d", Template: "base", Taken: time.Now()}
		if err := os.Mkdir(st.dir(s.ID), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := log.PutSnapshot(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if dir, _, err := st.Ensure(t.Context(), s.ID, offer); err != nil || dir != st.dir(s.ID) {
			t.Fatalf("got %q, %v; want %q", dir, err, st.dir(s.ID))
		}
	}
}
