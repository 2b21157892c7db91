package reseal_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/account"
	"github.com/millrace/millrace/events/bundle"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/identity"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/reseal"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	"github.com/millrace/millrace/events/seal/sealtest"
	"github.com/millrace/millrace/events/webhook"
)

// world is a log with values of all kinds that are sealed again.
type world struct {
	t    *testing.T
	log  *events.Log
	ring *seal.Ring
	hook webhook.ID
	snap sandbox.SnapshotID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := eventstest.Open(t, eventstest.Start(t))
	w := &world{t, log, eventstest.Ring(t, log), webhook.NewID(), sandbox.NewSnapshotID()}
	for _, id := range []string{"sec_1", "sec_2", "sec_3"} {
		s := catalog.Secret{ID: id, Tenant: "alice", Name: id, Version: 4, Created: time.Unix(7, 0), Updated: time.Unix(8, 0), Metadata: map[string]string{"a": "b"}}
		s.Sealed = sealtest.Seal(t, w.ring, s.Place(), "canary "+id)
		w.must(log.NewSecret(t.Context(), &s))
	}
	h := webhook.Webhook{ID: w.hook, Tenant: "bob", Name: "hook", URL: "https://a.test", Enabled: true, Created: time.Unix(7, 0)}
	h.Secret = sealtest.Seal(t, w.ring, h.Place(), "canary hook")
	_, err := log.PutWebhook(t.Context(), &h)
	w.must(err)
	for _, access := range []string{"AKIAVALID", "AKIAREVOKED"} {
		k := catalog.PairOf("carol", access, time.Unix(7, 0))
		k.Secret = sealtest.Seal(t, w.ring, k.Place(), "canary "+access)
		w.must(log.IssueKey(t.Context(), k))
	}
	w.must(log.RevokeKey(t.Context(), "carol", catalog.PairOf("carol", "AKIAREVOKED", time.Time{}).ID, 0))
	w.must(log.PutSigningKey(t.Context(), 1, sealtest.Seal(t, w.ring, identity.Place(1), "canary signer")))
	k := account.TokenKey{Number: 1, Made: time.Unix(7, 0)}
	k.Sealed = sealtest.Seal(t, w.ring, k.Place(), "canary token key")
	w.must(log.Directory().PutTokenKey(t.Context(), &k))
	env, err := sandbox.Defaults{Env: map[string]string{"A": "canary"}, User: "u"}.Seal(w.ring, "dave", string(w.snap))
	w.must(err)
	w.must(log.PutSnapshot(t.Context(), &sandbox.Snapshot{ID: w.snap, Tenant: "dave", Taken: time.Unix(7, 0), Defaults: env}))
	w.must(log.Bundles().PutValue(t.Context(), "erin", "g1", 7, bundle.Value{Key: "A", Sealed: sealtest.Seal(t, w.ring, bundle.Place("erin", "g1", "A"), "canary bundle")}))
	return w
}

const values = 10 // of a world

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// rotate makes another data key the current one.
func (w *world) rotate() {
	w.t.Helper()
	s, err := w.log.State(w.t.Context())
	w.must(err)
	_, err = w.log.RotateData(w.t.Context(), "test", s.Current, false)
	w.must(err)
	w.must(w.ring.Refresh())
}

func quiet(reseal.Progress) error { return nil }

// check opens all values in a new view. All must have the current data key if current is set.
func (w *world) check(current bool) {
	w.t.Helper()
	view := eventstest.View(w.t, w.log)
	w.must(view.Sync(w.t.Context()))
	want := func(what string, at seal.Place, text seal.Text, value string) {
		w.t.Helper()
		got, err := w.ring.Open(at, text)
		if got != value || err != nil || current && !w.ring.Current(text) {
			w.t.Errorf("%s: %q, %v, current %v", what, got, err, w.ring.Current(text))
		}
	}
	all := view.TenantSecrets("alice")
	if len(all) != 3 {
		w.t.Errorf("%d secrets", len(all))
	}
	for _, s := range all {
		want(s.ID, s.Place(), s.Sealed, "canary "+s.ID)
		if s.Version != 4 || !s.Updated.Equal(time.Unix(8, 0)) || s.Metadata["a"] != "b" {
			w.t.Errorf("another field changed: %+v", s)
		}
	}
	h, ok := view.Webhook("bob", w.hook)
	want("webhook", h.Place(), h.Secret, "canary hook")
	if !ok || !h.Enabled || h.URL != "https://a.test" {
		w.t.Errorf("another field changed: %+v", h)
	}
	k, ok := view.KeyPair("AKIAVALID")
	want("key pair", k.Place(), k.Secret, "canary AKIAVALID")
	if !ok || k.Issued.IsZero() {
		w.t.Errorf("another field changed: %+v", k)
	}
	if _, ok := view.KeyPair("AKIAREVOKED"); ok {
		w.t.Error("a revoked key pair is valid again")
	}
	snap, ok := view.Snapshot(w.snap)
	env, err := snap.OpenEnv(w.ring, "dave", string(w.snap))
	if !ok || err != nil || env["A"] != "canary" || snap.User != "u" || current && !w.ring.Current(snap.Sealed) {
		w.t.Errorf("snapshot: %+v, %v, %v", snap, env, err)
	}
	signers := view.SigningKeys()
	if len(signers) != 1 || signers[0].Made.IsZero() {
		w.t.Fatalf("%+v", signers)
	}
	want("signing key", identity.Place(1), signers[0].Sealed, "canary signer")
	users := w.log.Directory()
	w.must(users.Start(w.t.Context()))
	w.must(users.Sync(w.t.Context()))
	tokens := users.TokenKeys()
	if len(tokens) != 1 || !tokens[0].Made.Equal(time.Unix(7, 0)) {
		w.t.Fatalf("%+v", tokens)
	}
	want("token key", tokens[0].Place(), tokens[0].Sealed, "canary token key")
	v, ok, err := w.log.Bundles().Value(w.t.Context(), "erin", "g1", 7)
	w.must(err)
	want("bundle", bundle.Place("erin", "g1", "A"), v.Sealed, "canary bundle")
	if !ok || v.Key != "A" {
		w.t.Errorf("another field changed: %+v", v)
	}
}

// Wherever a pass is cut off, all values open, and another pass seals the rest.
func TestAPassCanBeCutOffAnywhere(t *testing.T) {
	w := newWorld(t)
	cut := errors.New("cut off")
	total := uint64(0)
	for after := range values {
		if after%3 == 0 {
			w.rotate()
		}
		p, err := w.log.Values().Reseal(t.Context(), w.ring, func(p reseal.Progress) error {
			if p.Resealed > uint64(after) {
				return cut
			}
			return nil
		})
		if err != nil && !errors.Is(err, cut) {
			t.Fatalf("after %d: %v", after, err)
		}
		total += p.Resealed
		w.check(false)
	}
	p, err := w.log.Values().Reseal(t.Context(), w.ring, quiet)
	if err != nil || p.Left != 0 || total+p.Resealed == 0 {
		t.Errorf("the last pass: %+v, %v", p, err)
	}
	w.check(true)
	if p, err := w.log.Values().Reseal(t.Context(), w.ring, quiet); err != nil || p != (reseal.Progress{}) {
		t.Errorf("a pass without work: %+v, %v", p, err)
	}
}

// After a pass no stream has a value of the replaced key, which can be removed.
func TestNothingOfAReplacedKeyIsLeft(t *testing.T) {
	w := newWorld(t)
	find := func(number uint32, last reseal.Found) reseal.Found {
		t.Helper()
		f, err := w.log.Values().Find(t.Context(), number, last)
		w.must(err)
		return f
	}
	if f := find(1, reseal.Found{}); f.Stream == "" || f.Stored.IsZero() {
		t.Fatalf("no value is found: %+v", f)
	}
	w.rotate()
	p, err := w.log.Values().Reseal(t.Context(), w.ring, quiet)
	if err != nil || p.Resealed != values || p.Left != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if f := find(1, reseal.Found{}); f != (reseal.Found{}) {
		t.Errorf("%+v has a value of the replaced key", f)
	}
	if f := find(2, reseal.Found{}); f.Stream == "" {
		t.Error("no value of the current key is found")
	}
	_, err = w.log.RemoveData(t.Context(), "test", 1)
	w.must(err)
	w.ring = eventstest.Ring(t, w.log)
	w.check(true)
}

// A record of a sandbox keeps its sealed values, and so the replaced key.
func TestRecordsKeepAReplacedKey(t *testing.T) {
	w := newWorld(t)
	h, err := sandbox.ParseHeader(w.ring, "alice", "a.test", "X-Key", "canary")
	w.must(err)
	network := sandbox.Network{Transforms: []sandbox.Transform{{Domain: "a.test", Headers: []sandbox.Header{h}}}}
	id := sandbox.NewID()
	_, err = w.log.AppendSandbox(t.Context(), "alice", id, 0, 1, sandbox.Requested{Schedule: sandbox.Schedule{Lifetime: time.Hour}}, sandbox.NetworkSet{Network: network})
	w.must(err)
	w.rotate()
	_, err = w.log.Values().Reseal(t.Context(), w.ring, quiet)
	w.must(err)
	f, err := w.log.Values().Find(t.Context(), 1, reseal.Found{})
	if err != nil || f.Stream != "SBX" {
		t.Fatalf("%+v, %v", f, err)
	}
	if again, err := w.log.Values().Find(t.Context(), 1, f); again != f || err != nil {
		t.Errorf("the same value: %+v, %v", again, err)
	}
}

// A value that cannot be opened stays as it is, is counted, and does not stop the pass.
func TestADamagedValueDoesNotStopAPass(t *testing.T) {
	w := newWorld(t)
	s := catalog.Secret{ID: "sec_0", Tenant: "alice", Name: "damaged", Version: 1, Sealed: seal.Text(seal.Head(1)) + seal.Text(strings.Repeat("x", 60))}
	w.must(w.log.NewSecret(t.Context(), &s))
	w.rotate()
	p, err := w.log.Values().Reseal(t.Context(), w.ring, quiet)
	if !kind.Is(err, kind.Internal) || p.Left != 1 || p.Resealed != values {
		t.Errorf("%+v, %v", p, err)
	}
	if f, err := w.log.Values().Find(t.Context(), 1, reseal.Found{}); f.Stream != "VAULT" || err != nil {
		t.Errorf("%+v, %v", f, err)
	}
}
