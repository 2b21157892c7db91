package bundle

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// E-311.
func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"my-llm-keys": true, "0": true, "a": true, "a-": true, strings.Repeat("a", 63): true,
		strings.Repeat("a", 64): false, "": false, "A": false, "-a": false, "a_b": false, "a.b": false, "a b": false, "ä": false, "a\n": false, "a/b": false, "*": false, "a>": false,
	} {
		got, err := ParseName(name)
		if (err == nil) != ok || ok && string(got) != name || !ok && !kind.Is(err, kind.Invalid) {
			t.Errorf("ParseName(%q) = %q, %v", name, got, err)
		}
	}
}

func keys(n int) map[string]string {
	out := make(map[string]string, n)
	for i := range n {
		out[fmt.Sprintf("KEY_%d", i)] = "value"
	}
	return out
}

// E-312, E-313, E-314, E-331.
func TestValues(t *testing.T) {
	const secret = "hunter2"
	tests := []struct {
		name   string
		values map[string]string
		ok     bool
	}{
		{"one", map[string]string{"LLM_API_KEY": secret}, true},
		{"none", nil, false},
		{"an empty value", map[string]string{"A": ""}, true},
		{"50 keys", keys(50), true},
		{"51 keys", keys(51), false},
		{"64 KiB", map[string]string{"A": strings.Repeat("x", 65536)}, true},
		{"more", map[string]string{"A": secret + strings.Repeat("x", 65530)}, false},
		{"multi-byte characters beyond 64 KiB", map[string]string{"A": strings.Repeat("ä", 32769)}, false},
		{"a NUL byte", map[string]string{"A": secret + "\x00"}, false},
		{"128 characters", map[string]string{strings.Repeat("k", 128): secret}, true},
		{"129 characters", map[string]string{strings.Repeat("k", 129): secret}, false},
		{"a digit first", map[string]string{"1A": secret}, false},
		{"a hyphen", map[string]string{"A-B": secret}, false},
		{"an equals sign", map[string]string{"A=" + secret: "x"}, false},
		{"no name", map[string]string{"": secret}, false},
		{"another script", map[string]string{"ΤASK": secret}, false},
		{"a reserved name in lower case", map[string]string{"task": secret}, true},
		{"a variable of workspaces", map[string]string{"WORKSPACE_MODE": secret}, true},
	}
	for name := range reserved {
		tests = append(tests, struct {
			name   string
			values map[string]string
			ok     bool
		}{name, map[string]string{name: secret}, false})
	}
	if len(reserved) != 9 {
		t.Errorf("%d reserved names, want 9", len(reserved))
	}
	for _, tt := range tests {
		err := CheckValues(tt.values)
		if (err == nil) != tt.ok || !tt.ok && !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error has the value: %v", tt.name, err)
		}
	}
}

func at(s int) time.Time { return time.Unix(int64(s), 0) }

// Every event, with and without the bundle: a pair that is absent from the table cannot happen.
func TestApply(t *testing.T) {
	none := State{Tenant: "t"}
	one, _, err := none.Apply(Created{"b", []string{"A"}, "g1", at(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		from State
		body Body
		want kind.Kind
		code string
	}{
		{"create", none, Created{Name: "b"}, 0, ""},
		{"create again", one, Created{Name: "b"}, kind.Conflict, "secret_bundle_exists"},
		{"rotate", one, Rotated{Name: "b"}, 0, ""},
		{"rotate what does not exist", none, Rotated{Name: "b"}, kind.NotFound, "not_found"},
		{"delete", one, Deleted{"b"}, 0, ""},
		{"delete what does not exist", none, Deleted{"b"}, kind.NotFound, "not_found"},
	} {
		_, _, err := tt.from.Apply(tt.body)
		if (err == nil) != (tt.code == "") || err != nil && (!kind.Is(err, tt.want) || kind.Code(err) != tt.code) {
			t.Errorf("%s: %v, code %s", tt.name, err, kind.Code(err))
		}
	}
	rotated, was, err := one.Apply(Rotated{"b", []string{"B", "C"}, "g2", at(2)})
	h, found := rotated.Find("b")
	if err != nil || found != nil || was.Generation != "g1" || h.Generation != "g2" || len(h.Keys) != 2 || !h.Created.Equal(at(1)) || !h.Rotated.Equal(at(2)) {
		t.Errorf("rotated: %+v, was %+v, %v", rotated, was, err)
	}
	if h, _ := one.Find("b"); h.Generation != "g1" {
		t.Error("the earlier state changed")
	}
	gone, was, err := rotated.Apply(Deleted{"b"})
	if _, found := gone.Find("b"); err != nil || !kind.Is(found, kind.NotFound) || was.Generation != "g2" || len(rotated.Heads) != 1 {
		t.Errorf("deleted: %+v, was %+v, %v", gone, was, err)
	}
}

// E-316: a tenant has 50 bundles at most, in the order of their names.
func TestQuota(t *testing.T) {
	s := State{}
	for i := range 50 {
		next, _, err := s.Apply(Created{Name: Name(fmt.Sprintf("b%02d", (i*7)%50))})
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	for i, h := range s.Heads {
		if want := Name(fmt.Sprintf("b%02d", i)); h.Name != want {
			t.Errorf("bundle %d is %s, want %s", i, h.Name, want)
		}
	}
	if _, _, err := s.Apply(Created{Name: "more"}); !kind.Is(err, kind.Throttled) || kind.Code(err) != "quota_exceeded" || kind.After(err) != 0 {
		t.Errorf("the 51st bundle: %v", err)
	}
	if _, _, err := s.Apply(Created{Name: "b00"}); !kind.Is(err, kind.Conflict) {
		t.Errorf("one of 50 again: %v", err)
	}
	s, _, _ = s.Apply(Deleted{"b07"})
	if _, _, err := s.Apply(Created{Name: "more"}); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

// E-156, E-157, E-158.
func TestSelect(t *testing.T) {
	s := State{}
	for i := range 12 {
		s, _, _ = s.Apply(Created{Name: Name(fmt.Sprint("b", i)), Keys: []string{fmt.Sprint("K", i%11)}})
	}
	names := func(n ...int) (out []Name) {
		for _, i := range n {
			out = append(out, Name(fmt.Sprint("b", i)))
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		names []Name
		want  kind.Kind
		ok    bool
	}{
		{"none", nil, 0, true},
		{"ten", names(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 0, true},
		{"eleven", names(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), kind.Invalid, false},
		{"a key twice", names(0, 11), kind.Invalid, false},
		{"a bundle twice", names(1, 1), kind.Invalid, false},
		{"one that does not exist", names(1, 77), kind.NotFound, false},
	} {
		got, err := s.Select(tt.names)
		if (err == nil) != tt.ok || !tt.ok && !kind.Is(err, tt.want) || tt.ok && len(got) != len(tt.names) {
			t.Errorf("%s: %d bundles, %v", tt.name, len(got), err)
		}
	}
	if _, err := s.Select(names(0, 11)); !strings.Contains(err.Error(), "K0") {
		t.Errorf("the error does not name the key: %v", err)
	}
}

// Generations are tokens of a subject and differ.
func TestGenerations(t *testing.T) {
	seen := make(map[Generation]bool)
	for range 100 {
		seen[NewGeneration()] = true
	}
	for g := range maps.Keys(seen) {
		if len(g) != 24 || strings.Trim(string(g), "0123456789abcdef") != "" {
			t.Errorf("generation %q", g)
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d of 100 generations differ", len(seen))
	}
}
