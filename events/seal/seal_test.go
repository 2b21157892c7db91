package seal

import (
	"errors"
	"strings"
	"testing"

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

func TestAValueOpensAtItsPlaceOnly(t *testing.T) {
	m := parse(t, NewMaster())
	r := ring(t, NewSet(m), m)
	at := Place{Tenant: "alice", Record: "r1", Field: "value"}
	sealed := r.Seal(at, "canary")
	if got, err := r.Open(at, sealed); got != "canary" || err != nil || strings.Contains(string(sealed), "canary") {
		t.Fatalf("%q, %v", got, err)
	}
	if again := r.Seal(at, "canary"); again == sealed {
		t.Error("two seals of the same text are equal")
	}
	if got, err := r.Open(at, r.Seal(at, "")); got != "" || err != nil || r.Seal(at, "") != "" {
		t.Errorf("empty: %q, %v", got, err)
	}
	other := ring(t, NewSet(m), m)
	for name, open := range map[string]func() (string, error){
		"another tenant":   func() (string, error) { return r.Open(Place{"bob", "r1", "value"}, sealed) },
		"another record":   func() (string, error) { return r.Open(Place{"alice", "r2", "value"}, sealed) },
		"another field":    func() (string, error) { return r.Open(Place{"alice", "r1", "secret"}, sealed) },
		"shifted names":    func() (string, error) { return r.Open(Place{"alicer", "1", "value"}, sealed) },
		"a changed byte":   func() (string, error) { return r.Open(at, sealed[:len(sealed)-1]+"x") },
		"a short text":     func() (string, error) { return r.Open(at, sealed[:20]) },
		"no sealed text":   func() (string, error) { return r.Open(at, "canary") },
		"another ring":     func() (string, error) { return other.Open(at, sealed) },
		"another data key": func() (string, error) { return r.Open(at, "\x01\x00\x00\x00\x09"+sealed[5:]) },
	} {
		if got, err := open(); got != "" || !kind.Is(err, kind.Internal) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestAWrongMasterKeyIsNotDamage(t *testing.T) {
	a, b := NewMaster(), NewMaster()
	s := NewSet(parse(t, a))
	s.AddSecret(parse(t, a), "x")
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

func TestRotationKeepsKeys(t *testing.T) {
	old, fresh := NewMaster(), NewMaster()
	s := NewSet(parse(t, old))
	s.AddSecret(parse(t, old), "x")
	at := Place{Tenant: "alice", Record: "r1", Field: "value"}
	before := ring(t, s, parse(t, old))
	sealed := before.Seal(at, "canary")
	secret, _, _ := s.Secret(parse(t, old), "x")

	if _, err := s.Rotated(parse(t, fresh)); !errors.Is(err, ErrWrong) {
		t.Errorf("without the old key: %v", err)
	}
	next, err := s.Rotated(parse(t, fresh, old))
	if err != nil {
		t.Fatal(err)
	}
	if s.Sealed(parse(t, fresh, old)) || !next.Sealed(parse(t, fresh)) {
		t.Error("Sealed does not tell the keys apart")
	}
	after := ring(t, next, parse(t, fresh))
	if got, err := after.Open(at, sealed); got != "canary" || err != nil {
		t.Errorf("an old value: %q, %v", got, err)
	}
	if got, ok, err := next.Secret(parse(t, fresh), "x"); string(got) != string(secret) || !ok || err != nil {
		t.Errorf("the secret changed: %v", err)
	}
	if _, err := next.Ring(parse(t, old)); !errors.Is(err, ErrWrong) {
		t.Errorf("the old key opens the new set: %v", err)
	}
	if after.Current(sealed) || !after.Current(after.Seal(at, "x")) {
		t.Error("new values have the old data key")
	}
	// A ring from before the rotation loads the new data key when it meets it.
	before.ReloadBy(func() (*Ring, error) { return next.Ring(parse(t, fresh, old)) })
	if got, err := before.Open(at, after.Seal(at, "new")); got != "new" || err != nil {
		t.Errorf("a new value: %q, %v", got, err)
	}
	if !before.Current(after.Seal(at, "x")) {
		t.Error("the older ring does not seal with the new data key")
	}
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

func BenchmarkSeal(b *testing.B) {
	m := parse(b, NewMaster())
	r := ring(b, NewSet(m), m)
	at, text := Place{Tenant: "alice", Record: "r1", Field: "env"}, strings.Repeat("x", 500)
	for b.Loop() {
		if _, err := r.Open(at, r.Seal(at, text)); err != nil {
			b.Fatal(err)
		}
	}
}
