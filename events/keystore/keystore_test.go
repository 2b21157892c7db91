package keystore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/seal"
)

// file is the file of a master key.
type file struct {
	mu   sync.Mutex
	text string
}

func (f *file) set(lines ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = strings.Join(lines, "\n")
}

func (f *file) source(context.Context, bool) (*seal.Master, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return seal.ParseMaster(f.text)
}

func server(t *testing.T) *natsd.Server {
	t.Helper()
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return srv
}

// keys returns the keys of a service with a file of its own.
func keys(t *testing.T, srv *natsd.Server, lines ...string) (*Keys, *file) {
	t.Helper()
	conn, err := store.Open(t.Context(), store.Config{
		InProcess: srv, Replicas: 1, Shards: 1, Retention: time.Hour, MaxOutput: 1 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	f := &file{}
	f.set(lines...)
	return New(conn, f.source), f
}

// versions returns the number of stored versions of the keys.
func versions(t *testing.T, k *Keys) int {
	t.Helper()
	all, err := k.conn.GetFrom(t.Context(), streams.Secrets, subject, 1, store.BatchSize)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var at = seal.Place{Tenant: "alice", Record: "r", Field: "value"}

// A replaced master key opens neither the keys nor an earlier version of them. A service that has
// only that one works until the data key is replaced, too.
func TestTheMasterKeyIsReplaced(t *testing.T) {
	srv := server(t)
	old, fresh := seal.NewMaster(), seal.NewMaster()
	k, f := keys(t, srv, old)
	other, otherFile := keys(t, srv, old)
	secret := must[[]byte](t)(k.Secret(t.Context(), "x"))
	ring, otherRing := must[*seal.Ring](t)(k.Ring(t.Context())), must[*seal.Ring](t)(other.Ring(t.Context()))
	value := must[seal.Text](t)(ring.Seal(at, "canary"))

	f.set(fresh, old)
	state := must[State](t)(k.RotateMaster(t.Context(), "op", false))
	if again := must[State](t)(k.RotateMaster(t.Context(), "op", false)); again.Rev != state.Rev {
		t.Error("a repeated rotation changed the keys")
	}
	if n := versions(t, k); n != 1 {
		t.Errorf("%d versions are stored", n)
	}
	last := state.Changes[len(state.Changes)-1]
	if last.Kind != MasterKey || last.By != "op" || last.Master != state.Master || state.Current != 1 {
		t.Errorf("%+v", state)
	}
	f.set(fresh)
	if got := must[[]byte](t)(k.Secret(t.Context(), "x")); string(got) != string(secret) {
		t.Error("the secret changed")
	}
	if got, err := must[*seal.Ring](t)(k.Ring(t.Context())).Open(at, value); got != "canary" || err != nil {
		t.Errorf("an old value: %q, %v", got, err)
	}

	if err := otherRing.Refresh(); err != nil {
		t.Errorf("a running service with the old key cannot seal: %v", err)
	}
	if _, err := other.Ring(t.Context()); !errors.Is(err, seal.ErrWrong) {
		t.Errorf("the old key opens the store: %v", err)
	}
	must[State](t)(k.RotateData(t.Context(), "op", 1, false))
	if err := otherRing.Refresh(); !errors.Is(err, seal.ErrWrong) {
		t.Errorf("a service without the master key of the data key: %v", err)
	}
	otherFile.set(fresh, old)
	if err := otherRing.Refresh(); err != nil || otherRing.CurrentKey() != 2 {
		t.Errorf("after it received the key: %v", err)
	}
}

// A service seals with a new data key once its ring is refreshed.
func TestARingIsRefreshed(t *testing.T) {
	srv, master := server(t), seal.NewMaster()
	k, _ := keys(t, srv, master)
	other, _ := keys(t, srv, master)
	ring := must[*seal.Ring](t)(k.Ring(t.Context()))
	must[State](t)(other.RotateData(t.Context(), "op", 1, true))
	if err := ring.Refresh(); err != nil || ring.CurrentKey() != 2 {
		t.Errorf("data key %d, %v", ring.CurrentKey(), err)
	}
}

// Operators that rotate at once make one new key.
func TestOneOfSeveralRotationsAtOnceWins(t *testing.T) {
	srv := server(t)
	old, fresh := seal.NewMaster(), seal.NewMaster()
	k, _ := keys(t, srv, fresh, old)
	first, _ := keys(t, srv, old)
	must[*seal.Ring](t)(first.Ring(t.Context()))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if s, err := k.RotateData(t.Context(), "op", 1, false); err != nil || s.Current != 2 {
				t.Errorf("data key: %+v, %v", s, err)
			}
		})
		all.Go(func() {
			if _, err := k.RotateMaster(t.Context(), "op", false); err != nil {
				t.Errorf("master key: %v", err)
			}
		})
	}
	all.Wait()
	s := must[State](t)(k.State(t.Context()))
	if s.Current != 2 || !slices.Equal(s.Old, []uint32{1}) || len(s.Changes) != 3 || versions(t, k) != 1 {
		t.Errorf("%+v, %d versions", s, versions(t, k))
	}
	if _, err := first.Ring(t.Context()); !errors.Is(err, seal.ErrWrong) {
		t.Errorf("the old key opens the store: %v", err)
	}
	if _, err := k.RotateData(t.Context(), "op", 7, false); !kind.Is(err, kind.Invalid) {
		t.Errorf("a key that does not exist: %v", err)
	}
}

// Tidy removes the earlier versions that a crash left.
func TestEarlierVersionsAreRemovedAfterACrash(t *testing.T) {
	k, _ := keys(t, server(t), seal.NewMaster())
	v, master, err := k.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.set, err = v.set.Rotated(master); err == nil {
		_, err = k.put(t.Context(), v)
	}
	if err != nil || versions(t, k) != 2 {
		t.Fatalf("%d versions, %v", versions(t, k), err)
	}
	if err := k.Tidy(t.Context()); err != nil || versions(t, k) != 1 {
		t.Errorf("%d versions, %v", versions(t, k), err)
	}
	if s := must[State](t)(k.RemoveData(t.Context(), "reaper", 1)); len(s.Old) != 0 || s.Current != 2 {
		t.Errorf("%+v", s)
	}
	if s := must[State](t)(k.RemoveData(t.Context(), "reaper", 1)); len(s.Old) != 0 {
		t.Errorf("removed twice: %+v", s)
	}
	if _, err := k.RemoveData(t.Context(), "reaper", 2); !kind.Is(err, kind.Precondition) {
		t.Errorf("the current key: %v", err)
	}
}

// A rotation that a running service could not follow is refused, and names the service.
func TestARotationRequiresAllServices(t *testing.T) {
	srv := server(t)
	old, fresh := seal.NewMaster(), seal.NewMaster()
	k, _ := keys(t, srv, fresh, old)
	behind, behindFile := keys(t, srv, old)
	must[*seal.Ring](t)(behind.Ring(t.Context()))
	report := func() {
		t.Helper()
		for service, k := range map[string]*Keys{"gateway": k, "host": behind} {
			if err := k.announce(t.Context(), service, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	report()
	refused := func(what string, _ State, err error) {
		t.Helper()
		if !kind.Is(err, kind.Precondition) || !strings.Contains(kind.Message(err), ": host;") || strings.Contains(err.Error(), fresh) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s, err := k.RotateMaster(t.Context(), "op", false)
	refused("master key", s, err)
	must[State](t)(k.RotateMaster(t.Context(), "op", true))
	s, err = k.RotateData(t.Context(), "op", 1, false)
	refused("data key", s, err)
	must[State](t)(k.RotateData(t.Context(), "op", 1, true))
	report()
	s, err = k.RemoveData(t.Context(), "reaper", 1)
	refused("removal", s, err)
	behindFile.set(fresh)
	report()
	all := must[[]Report](t)(k.Reports(t.Context()))
	if len(all) != 2 || all[1].Service != "host" || all[1].Data != 2 || all[1].Problem != "" || len(all[1].Masters) != 1 {
		t.Errorf("%+v", all)
	}
	must[State](t)(k.RemoveData(t.Context(), "reaper", 1))
}

// A service that has stopped no longer counts.
func TestOldReportsDoNotCount(t *testing.T) {
	k, _ := keys(t, server(t), seal.NewMaster())
	must[*seal.Ring](t)(k.Ring(t.Context()))
	if err := k.announce(t.Context(), "x", time.Second); err != nil {
		t.Fatal(err)
	}
	all, err := k.conn.GetFrom(t.Context(), streams.IO, reportPrefix+"*", 1, 1)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	for age, want := range map[time.Duration]int{0: 2, 3 * time.Second: 2, 4 * time.Second: 1} {
		older := all[0]
		older.Time = older.Time.Add(-age)
		if got := running([]store.Message{all[0], older}); len(got) != want {
			t.Errorf("%v: %d reports, want %d", age, len(got), want)
		}
	}
}

func TestTheUseOfKeysIsStored(t *testing.T) {
	k, _ := keys(t, server(t), seal.NewMaster())
	if _, ok, err := k.LastUse(t.Context()); ok || err != nil {
		t.Errorf("without a search: %v, %v", ok, err)
	}
	want := Use{Time: time.Unix(7, 0), By: "reaper", Current: 2, Resealed: 3, Left: 1, Kept: []Kept{{Data: 1, Stream: "SBX", Stored: time.Unix(5, 0)}}}
	for range 2 {
		if err := k.PutUse(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}
	got, ok, err := k.LastUse(t.Context())
	if !ok || err != nil || got.By != want.By || got.Left != 1 || got.Resealed != 3 || len(got.Kept) != 1 || got.Kept[0] != want.Kept[0] || !got.Time.Equal(want.Time) {
		t.Errorf("%+v, %v", got, err)
	}
	if all, err := k.conn.GetFrom(t.Context(), streams.Secrets, useSubject, 1, 9); len(all) != 1 || err != nil {
		t.Errorf("%d are stored, %v", len(all), err)
	}
}

// No stored bytes make a decoder panic, and what it accepts it can store again.
func FuzzDecode(f *testing.F) {
	m, err := seal.ParseMaster(seal.NewMaster())
	if err != nil {
		f.Fatal(err)
	}
	first := version{set: seal.NewSet(m)}
	first.note(Change{Kind: Created, Data: 1}, "op")
	data, err := encode(first)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeUse(b) // it must not panic
		running([]store.Message{{Data: b}})
		v, err := decode(b)
		if err != nil {
			return
		}
		v.state()
		again, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if w, err := decode(again); err != nil || w.set.Current != v.set.Current || len(w.set.Data) != len(v.set.Data) || len(w.changes) != len(v.changes) {
			t.Errorf("%+v becomes %+v, %v", v, w, err)
		}
	})
}
