package audit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// chainOf returns a chain of n links.
func chainOf(t *testing.T, name string, n int) []Link {
	t.Helper()
	prev, out := Start(name), make([]Link, 0, n)
	for i := range n {
		l, err := NewLink(prev, &Entry{Chain: name, Seq: uint64(i + 1), Event: "unauthenticated", Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		out, prev = append(out, l), l.Hash
	}
	return out
}

func verify(links []Link) (*Verifier, error) {
	v := &Verifier{}
	for i := range links {
		if _, err := v.Add(&links[i]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// Whatever is changed, removed, inserted or reordered inside a chain is found.
func TestChangesOfAChainAreFound(t *testing.T) {
	a, b := chainOf(t, "A", 4), chainOf(t, "B", 2)
	good := []Link{a[0], b[0], a[1], a[2], b[1], a[3]}
	v, err := verify(good)
	if err != nil || v.Links != 6 || v.Chains["A"].Last != 4 || v.Chains["B"].End != b[1].Hash {
		t.Fatalf("%+v, %v", v, err)
	}
	forged := a[1]
	forged.Entry = json.RawMessage(strings.Replace(string(forged.Entry), "unauthenticated", "nothing", 1))
	rehashed := forged
	rehashed.Hash = sum(rehashed.Prev, rehashed.Entry)
	other, err := NewLink(Hash{}, &Entry{Chain: "C", Seq: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, links := range map[string][]Link{
		"a changed entry":              {a[0], forged, a[2]},
		"a changed entry and its hash": {a[0], rehashed, a[2]},
		"a removed link":               {a[0], a[2]},
		"two links in another order":   {a[0], a[2], a[1]},
		"a link twice":                 {a[0], a[1], a[1]},
		"a chain that starts wrongly":  {other},
		"no entry":                     {{Entry: json.RawMessage("x")}},
	} {
		if _, err := verify(links); !kind.Is(err, kind.Precondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := verify(a[2:]); err != nil || v.Chains["A"].First != 3 {
		t.Errorf("a chain whose beginning has expired: %+v, %v", v, err)
	}
}

func TestLinksAsText(t *testing.T) {
	links := chainOf(t, "A", 3)
	raw, err := json.Marshal(links)
	if err != nil {
		t.Fatal(err)
	}
	var again []Link
	if err := json.Unmarshal(raw, &again); err != nil || !slices.EqualFunc(links, again, func(a, b Link) bool { return a.Hash == b.Hash && bytes.Equal(a.Entry, b.Entry) }) {
		t.Fatalf("%v: %s", err, raw)
	}
	if _, err := verify(again); err != nil {
		t.Error(err)
	}
	var h Hash
	if err := h.UnmarshalText([]byte("00")); !kind.Is(err, kind.Invalid) {
		t.Errorf("a short hash: %v", err)
	}
}
