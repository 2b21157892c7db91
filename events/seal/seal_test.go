package seal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/events/kind"
)

func parse(t testing.TB, lines ...string) *Master {
	t.Helper()
	m, err := ParseMaster(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ring(t testing.TB, s *Set, m *Master) *Ring {
	t.Helper()
	r, err := s.Ring(m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sealed seals a text.
func sealed(t testing.TB, r *Ring, at Place, text string) Text {
	t.Helper()
	out, err := r.Seal(at, text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAValueOpensAtItsPlaceOnly(t *testing.T) {
	m := parse(t, NewMaster())
	r := ring(t, NewSet(m), m)
	at := Place{Tenant: "alice", Record: "r1", Field: "value"}
	value := sealed(t, r, at, "canary")
	if got, err := r.Open(at, value); got != "canary" || err != nil || strings.Contains(string(value), "canary") {
		t.Fatalf("%q, %v", got, err)
	}
	if again := sealed(t, r, at, "canary"); again == value {
		t.Error("two seals of the same text are equal")
	}
	if got, err := r.Open(at, sealed(t, r, at, "")); got != "" || err != nil || sealed(t, r, at, "") != "" {
		t.Errorf("empty: %q, %v", got, err)
	}
	other := ring(t, NewSet(m), m)
	for name, open := range map[string]func() (string, error){
		"another tenant":   func() (string, error) { return r.Open(Place{"bob", "r1", "value"}, value) },
		"another record":   func() (string, error) { return r.Open(Place{"alice", "r2", "value"}, value) },
		"another field":    func() (string, error) { return r.Open(Place{"alice", "r1", "secret"}, value) },
		"shifted names":    func() (string, error) { return r.Open(Place{"alicer", "1", "value"}, value) },
		"a changed byte":   func() (string, error) { return r.Open(at, value[:len(value)-1]+"x") },
		"a short text":     func() (string, error) { return r.Open(at, value[:20]) },
		"no sealed text":   func() (string, error) { return r.Open(at, "canary") },
		"another ring":     func() (string, error) { return other.Open(at, value) },
		"another data key": func() (string, error) { return r.Open(at, "\x01\x00\x00\x00\x09"+value[5:]) },
	} {
		if got, err := open(); got != "" || !kind.Is(err, kind.Internal) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestAWrongMasterKeyIsNotDamage(t *testing.T) {
	a, b := NewMaster(), NewMaster()
	s := NewSet(parse(t, a))
	if err := s.AddSecret(parse(t, a), "x"); err != nil {
		t.Fatal(err)
	}
	if err := s.AddSecret(parse(t, b), "z"); !errors.Is(err, ErrWrong) {
		t.Errorf("a secret under another master key: %v", err)
	}
	if _, err := s.Ring(parse(t, b)); !errors.Is(err, ErrWrong) || !kind.Is(err, kind.Precondition) {
		t.Errorf("ring: %v", err)
	}
	_, _, err := s.Secret(parse(t, b), "x")
	if !errors.Is(err, ErrWrong) || !strings.Contains(kind.Message(err), parse(t, a).ID()) || strings.Contains(err.Error(), a) {
		t.Errorf("secret: %v", err)
	}
	s.Secrets["y"] = s.Secrets["x"]
	if _, _, err := s.Secret(parse(t, a), "y"); !kind.Is(err, kind.Internal) || errors.Is(err, ErrWrong) {
		t.Errorf("a secret under another name: %v", err)
	}
	s.Data[1][idSize+30]++
	if _, err := s.Ring(parse(t, a)); !kind.Is(err, kind.Internal) || errors.Is(err, ErrWrong) {
		t.Errorf("damaged: %v", err)
	}
}

// A new master key seals the same keys again, and the replaced one opens them no longer.
func TestANewMasterKeyKeepsTheKeys(t *testing.T) {
	old, fresh := NewMaster(), NewMaster()
	s := NewSet(parse(t, old))
	if err := s.AddSecret(parse(t, old), "x"); err != nil {
		t.Fatal(err)
	}
	at := Place{Tenant: "alice", Record: "r1", Field: "value"}
	value := sealed(t, ring(t, s, parse(t, old)), at, "canary")
	secret, _, _ := s.Secret(parse(t, old), "x")

	if _, err := s.Rewrapped(parse(t, fresh)); !errors.Is(err, ErrWrong) {
		t.Errorf("without the old key: %v", err)
	}
	both := parse(t, fresh, old)
	next, err := s.Rewrapped(both)
	if err != nil {
		t.Fatal(err)
	}
	if s.Sealed(both) || !next.Sealed(parse(t, fresh)) || s.MasterID() != both.IDs()[1] || next.MasterID() != both.ID() {
		t.Error("the sets do not tell the master keys apart")
	}
	after := ring(t, next, parse(t, fresh))
	if got, err := after.Open(at, value); got != "canary" || err != nil || !after.Current(value) {
		t.Errorf("an old value: %q, %v", got, err)
	}
	if got, ok, err := next.Secret(parse(t, fresh), "x"); string(got) != string(secret) || !ok || err != nil {
		t.Errorf("the secret changed: %v", err)
	}
	if _, err := next.Ring(parse(t, old)); !errors.Is(err, ErrWrong) {
		t.Errorf("the old key opens the new set: %v", err)
	}
}

// A new data key is sealed with the master key of the others, wherever that is in the list: all
// services have that one.
func TestANewDataKey(t *testing.T) {
	old, fresh := NewMaster(), NewMaster()
	s := NewSet(parse(t, old))
	at := Place{Tenant: "alice", Record: "r1", Field: "value"}
	before := ring(t, s, parse(t, old))
	value := sealed(t, before, at, "canary")

	if _, err := s.Rotated(parse(t, fresh)); !errors.Is(err, ErrWrong) {
		t.Errorf("without the master key: %v", err)
	}
	next, err := s.Rotated(parse(t, fresh, old))
	if err != nil {
		t.Fatal(err)
	}
	after := ring(t, next, parse(t, old))
	if got, err := after.Open(at, value); got != "canary" || err != nil || after.Current(value) || !slices.Equal(next.Old(), []uint32{1}) {
		t.Errorf("an old value: %q, %v; old keys %v", got, err, next.Old())
	}
	again, err := after.Reseal(at, value)
	if got, oErr := after.Open(at, again); err != nil || oErr != nil || got != "canary" || !after.Current(again) {
		t.Errorf("sealed again: %q, %v, %v", got, err, oErr)
	}
	if !strings.HasPrefix(string(value), string(Head(1))) || !strings.HasPrefix(string(again), string(Head(2))) {
		t.Error("the heads do not tell the data keys apart")
	}
	// A ring from before loads the new data key when it meets it.
	before.ReadBy(func(_ context.Context, current uint32) (*Ring, error) { return next.Ring(parse(t, old)) })
	if got, err := before.Open(at, again); got != "canary" || err != nil || !before.Current(again) {
		t.Errorf("a new value: %q, %v", got, err)
	}

	if _, err := next.Without(2); !kind.Is(err, kind.Precondition) {
		t.Errorf("without the current key: %v", err)
	}
	last, err := next.Without(1)
	if err != nil {
		t.Fatal(err)
	}
	end := ring(t, last, parse(t, old))
	if got, err := end.Open(at, again); got != "canary" || err != nil {
		t.Errorf("a new value without the old key: %q, %v", got, err)
	}
	if got, err := end.Open(at, value); got != "" || !kind.Is(err, kind.Internal) {
		t.Errorf("an old value without its key: %q, %v", got, err)
	}
}

// A ring that is kept does not read keys when it seals.
func TestAKeptRingNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := parse(t, NewMaster())
		s := NewSet(m)
		r := ring(t, s, m)
		var reads atomic.Int32
		r.ReadBy(func(context.Context, uint32) (*Ring, error) { reads.Add(1); return nil, nil })
		ctx, cancel := context.WithCancel(t.Context())
		go r.Keep(ctx)
		for range 10 {
			<-time.After(Fresh - Fresh/8)
			synctest.Wait()
			before := reads.Load()
			sealed(t, r, Place{Record: "r1"}, "x")
			if reads.Load() != before {
				t.Fatal("Seal read the keys")
			}
		}
		cancel()
		synctest.Wait()
		before := reads.Load()
		<-time.After(2 * Fresh)
		if reads.Load() != before {
			t.Error("it reads keys after its end")
		}
	})
}

// A ring that has not read the keys for some time reads them before it seals, and does not seal
// with a key that it cannot confirm.
func TestSealingReadsWhichKeyIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := parse(t, NewMaster())
		s := NewSet(m)
		at := Place{Tenant: "alice", Record: "r1", Field: "value"}
		r := ring(t, s, m)
		reads, fail := 0, error(nil)
		r.ReadBy(func(_ context.Context, current uint32) (*Ring, error) {
			if reads++; fail != nil || current == s.Current {
				return nil, fail
			}
			return s.Ring(m)
		})
		sealed(t, r, at, "x")
		if reads != 0 {
			t.Error("it read keys that it had just read")
		}
		<-time.After(Fresh)
		sealed(t, r, at, "x")
		sealed(t, r, at, "x")
		if reads != 1 {
			t.Errorf("%d reads, want 1", reads)
		}
		<-time.After(Fresh)
		var err error
		if s, err = s.Rotated(m); err != nil {
			t.Fatal(err)
		}
		if value := sealed(t, r, at, "x"); r.CurrentKey() != 2 || !r.Current(value) {
			t.Error("it seals with the key that was replaced")
		}
		<-time.After(Fresh)
		fail = ErrWrong
		if value, err := r.Seal(at, "x"); !errors.Is(err, ErrWrong) || value != "" {
			t.Errorf("with keys that it cannot read: %q, %v", value, err)
		}
	})
}

func TestMasterKeyFiles(t *testing.T) {
	key := NewMaster()
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"a key", key, true}, {"a line", key + "\n", true}, {"CRLF", key + "\r\n", true}, {"a comment", "# x\n\n" + key, true},
		{"two keys", key + "\n" + NewMaster(), true}, {"capitals", strings.ToUpper(key), true},
		{"nothing", "", false}, {"only a comment", "# x\n", false}, {"a short key", key[2:], false}, {"a long key", key + "00", false},
		{"another text", strings.Repeat("x", 64), false}, {"a broken second line", key + "\nx", false},
	} {
		m, err := ParseMaster(tt.text)
		if (err == nil) != tt.ok || tt.ok && m.ID() == "" || err != nil && strings.Contains(err.Error(), key[2:]) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestMapsAndListsAreSealed(t *testing.T) {
	r, at := newRing(t), Place{Tenant: "alice", Record: "r1", Field: "environment"}
	for _, m := range []map[string]string{nil, {"A": "1"}, {"": ""}, {"A": "", "B": "canary", "C": strings.Repeat("x", 1<<17)}} {
		value, err := r.SealMap(at, m)
		if err != nil || strings.Contains(string(value), "canary") || (value == "") != (len(m) == 0) {
			t.Fatalf("%d variables: %q, %v", len(m), value, err)
		}
		if got, err := r.OpenMap(at, value); err != nil || !maps.Equal(got, m) {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	words := []string{"A", "", "A", "2"}
	value, err := r.SealList(at, words)
	if got, oErr := r.OpenList(at, value); err != nil || oErr != nil || !slices.Equal(got, words) {
		t.Errorf("%q, %v, %v", got, err, oErr)
	}
	if _, err := r.OpenMap(Place{Tenant: "bob", Record: "r1", Field: "environment"}, value); !kind.Is(err, kind.Internal) {
		t.Errorf("another tenant: %v", err)
	}
	for _, text := range []string{"\x05A", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if got, err := r.OpenList(at, sealed(t, r, at, text)); !kind.Is(err, kind.Internal) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestHashesNeedTheKey(t *testing.T) {
	m := parse(t, NewMaster())
	s := NewSet(m)
	r, at := ring(t, s, m), Place{Tenant: "alice", Record: "i1", Field: "spec"}
	h := func(r *Ring, at Place, text string) string { return string(r.Hash(at, []byte(text))) }
	next, err := s.Rotated(m)
	if err != nil {
		t.Fatal(err)
	}
	if h(r, at, "x") != h(ring(t, next, m), at, "x") {
		t.Error("a rotation changes hashes")
	}
	for name, other := range map[string]string{
		"text": h(r, at, "y"), "key": h(newRing(t), at, "x"), "tenant": h(r, Place{"bob", "i1", "spec"}, "x"), "record": h(r, Place{"alice", "i2", "spec"}, "x"),
	} {
		if other == h(r, at, "x") {
			t.Errorf("another %s has the same hash", name)
		}
	}
}

// newRing returns a ring with a key of its own.
func newRing(t testing.TB) *Ring {
	m := parse(t, NewMaster())
	return ring(t, NewSet(m), m)
}

// One start: the gateway hashes and seals its environment, the host opens and hashes it.
func BenchmarkStart(b *testing.B) {
	r, at := newRing(b), Place{Tenant: "alice", Record: "01jd0000000000000000000000-i1", Field: "environment"}
	for _, n := range []int{0, 1, 10, 100} {
		env := make(map[string]string)
		for i := range n {
			env[fmt.Sprint("VARIABLE_", i)] = strings.Repeat("x", 40)
		}
		spec := make([]byte, 60+60*n)
		b.Run(fmt.Sprint(n, " variables"), func(b *testing.B) {
			for b.Loop() {
				r.Hash(at, spec)
				value, err := r.SealMap(at, env)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.OpenMap(at, value); err != nil {
					b.Fatal(err)
				}
				r.Hash(at, spec)
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	m := parse(b, NewMaster())
	r := ring(b, NewSet(m), m)
	at, text := Place{Tenant: "alice", Record: "r1", Field: "env"}, strings.Repeat("x", 500)
	for b.Loop() {
		if _, err := r.Open(at, sealed(b, r, at, text)); err != nil {
			b.Fatal(err)
		}
	}
}

// No text makes Open panic, or opens without having been sealed.
func FuzzOpen(f *testing.F) {
	m := parse(f, NewMaster())
	r := ring(f, NewSet(m), m)
	at := Place{Tenant: "alice", Record: "r1", Field: "value"}
	good := sealed(f, r, at, "canary")
	f.Add([]byte(good))
	f.Add([]byte(good[:headLen]))
	f.Add(Head(2))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := r.Open(at, Text(b)); err == nil && got != "" && Text(b) != good {
			t.Errorf("%x opens as %q", b, got)
		}
	})
}

// No stored set makes the functions that read it panic.
func FuzzSet(f *testing.F) {
	m := parse(f, strings.Repeat("5e", KeySize))
	f.Add(uint32(1), uint32(1), NewSet(m).Data[1])
	f.Add(uint32(2), uint32(1), []byte("short"))
	f.Fuzz(func(t *testing.T, current, number uint32, wrapped []byte) {
		s := &Set{Current: current, Data: map[uint32][]byte{number: wrapped}, Secrets: map[string][]byte{"x": wrapped}}
		s.MasterID()
		s.Old()
		s.Sealed(m)
		if _, err := s.Ring(m); err != nil {
			if _, err := s.Rewrapped(m); err == nil && number == current {
				t.Error("a set that cannot be opened was sealed again")
			}
		}
		s.Rotated(m)     // it must not panic
		s.Secret(m, "x") // it must not panic
	})
}
