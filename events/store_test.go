package events_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/seal/sealtest"
)

// A volume's name is unique within its tenant. A change based on an old version is
// rejected.
func TestVolumesInTheLog(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: "alice", Name: "data", Host: "h1", Created: time.Unix(7, 0)}
	if err := log.NewVolume(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if err := log.NewVolume(t.Context(), &v); err != nil {
		t.Errorf("a retry, as after a lost ack: %v", err)
	}
	other := v
	other.ID = sandbox.NewVolumeID()
	if err := log.NewVolume(t.Context(), &other); !kind.Is(err, kind.Conflict) {
		t.Errorf("a second one with the name: %v", err)
	}
	other.Tenant = "bob"
	if err := log.NewVolume(t.Context(), &other); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, ok := view.NamedVolume("alice", "data")
	if byID, ok2 := view.Volume(v.ID); !ok || !ok2 || byID != got || got.ID != v.ID || got.Host != "h1" || !got.Created.Equal(v.Created) || got.Rev == 0 {
		t.Fatalf("got %+v", got)
	}
	got.Made = true
	if err := log.PutVolume(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	made, err := view.AwaitVolume(t.Context(), "alice", "data", func(s *sandbox.Volume) bool { return s.Made })
	if err != nil || made.Rev <= got.Rev {
		t.Errorf("%+v, %v", made, err)
	}
	if err := log.PutVolume(t.Context(), &got); !kind.Is(err, kind.Conflict) && err != nil {
		t.Errorf("from an old version: %v", err)
	}
	if all := view.Volumes(func(s *sandbox.Volume) bool { return s.Tenant == "bob" }); len(all) != 1 || all[0].ID != other.ID {
		t.Errorf("bob's: %+v", all)
	}
}

// A secret in the log can be opened, and is gone after its removal.
func TestSecretsInTheLog(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	view := eventstest.View(t, log)
	ring := eventstest.Ring(t, log)
	s := catalog.Secret{ID: "sec_1", Tenant: "alice", Name: "key", Version: 1, Sealed: sealtest.Seal(t, ring, seal.Place{Tenant: "alice", Record: "sec_1", Field: "value"}, "canary"),
		Metadata: map[string]string{"a": "b"}, Created: time.Unix(7, 0)}
	if err := log.NewSecret(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	if err := view.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, ok := view.TenantSecret("alice", "sec_1")
	if value, err := ring.Open(got.Place(), got.Sealed); !ok || value != "canary" || err != nil || got.Metadata["a"] != "b" || got.Rev == 0 {
		t.Errorf("%+v: %q, %v", got, value, err)
	}
	if _, ok := view.TenantSecret("bob", "sec_1"); ok || len(view.TenantSecrets("bob")) != 0 {
		t.Error("another tenant can read it")
	}
	if got.Removed, got.Sealed = true, ""; log.PutSecret(t.Context(), &got) != nil {
		t.Fatal("removal failed")
	}
	if err := view.Sync(t.Context()); err != nil || len(view.TenantSecrets("alice")) != 0 {
		t.Errorf("%v, %+v", err, view.TenantSecrets("alice"))
	}
}

func TestPositionsOfWatchesInTheLog(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	id := process.NewID("i1")
	at, err := log.WatchCursor(t.Context(), id)
	if err != nil || at != (catalog.WatchCursor{}) {
		t.Fatalf("%+v, %v", at, err)
	}
	at = catalog.WatchCursor{From: 3, To: 9, Key: "k"}
	rev, err := log.PutWatchCursor(t.Context(), id, at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.PutWatchCursor(t.Context(), id, catalog.WatchCursor{To: 1}); !kind.Is(err, kind.Conflict) {
		t.Errorf("from an old version: %v", err)
	}
	at.Rev = rev
	if got, err := log.WatchCursor(t.Context(), id); got != at || err != nil {
		t.Errorf("%+v, %v; want %+v", got, err, at)
	}
}
