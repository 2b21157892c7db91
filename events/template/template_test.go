package template

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

func TestParseRef(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct {
		in   string
		want Ref
		ok   bool
	}{
		{"standard", Ref{Name: "standard", Tag: "latest"}, true},
		{"standard:v1.2", Ref{Name: "standard", Tag: "v1.2"}, true},
		{"code-interpreter-v1", Ref{Name: "code-interpreter-v1", Tag: "latest"}, true},
		{id, Ref{ID: id}, true},
		{id[:12], Ref{ID: id[:12]}, true},
		{id[:11], Ref{Name: id[:11], Tag: "latest"}, true},
		{"", Ref{}, false},
		{"a.b", Ref{}, false},
		{"a/b", Ref{}, false},
		{"../x", Ref{}, false},
		{"a:*", Ref{}, false},
		{"a:>", Ref{}, false},
		{"a:b:c", Ref{}, false},
		{"A", Ref{}, false},
		{"-a", Ref{}, false},
		{"a:.", Ref{}, false},
		{strings.Repeat("z", 64), Ref{}, false},
	} {
		got, err := ParseRef(tt.in)
		if got != tt.want || (err == nil) != tt.ok || err != nil && !kind.Is(err, kind.NotFound) {
			t.Errorf("ParseRef(%q) = %+v, %v; want %+v, %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
	for _, name := range []string{"host", "base", "base:v1", id, "A", id[:12], id[:12] + ":v1", id[:63] + ":latest"} {
		if _, err := ParseNew(name); !kind.Is(err, kind.Invalid) {
			t.Errorf("ParseNew(%q): %v", name, err)
		}
	}
}

func sample() Manifest {
	return Manifest{
		Arch: "amd64", Env: map[string]string{"A": "1", "B": "2"}, Workdir: "/srv", User: "node", Start: []string{"node"},
		Sudo: true, Files: 3, Size: 10, Tar: PartSize + 1, Parts: []Sum{SumOf(nil), SumOf([]byte("x"))},
	}
}

// Only a name that may be a build's id is rejected.
func TestNamesThatLookLikeIDs(t *testing.T) {
	id := string(BuiltID("alice", "name"))
	for name, looks := range map[string]bool{id: true, "t" + id: false, "t15468-e2b245-builder": false, "team_api-server-v1-x2": false} {
		if got := IsBuiltID(name); got != looks {
			t.Errorf("%q: %v", name, got)
		}
		if _, err := ParseNew(name + ":v1"); err != nil && name != id {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestManifestIsCanonical(t *testing.T) {
	m := sample()
	b, id, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if id != ID(SumOf(b)) {
		t.Errorf("id %s is not the sum of the bytes", id)
	}
	// Stored ids depend on it: a changed id loses every existing template.
	if want := ID("b81597cbca1989f6b650fa87e49d39e678b655262c1dbd38066edd39b0bb7102"); id != want {
		t.Errorf("id %s, want %s", id, want)
	}
	back, again, err := Decode(b)
	if err != nil || again != id || back.Part(0) != PartSize || back.Part(1) != 1 {
		t.Errorf("decode: %+v, %s, %v", back, again, err)
	}
	for _, bad := range []string{" " + string(b), strings.Replace(string(b), `"version":1`, `"version":2`, 1),
		strings.Replace(string(b), `"arch":"amd64"`, `"arch":"amd64","x":1`, 1), string(b) + "{}"} {
		if _, _, err := Decode([]byte(bad)); !kind.Is(err, kind.Invalid) {
			t.Errorf("%.60s...: %v", bad, err)
		}
	}
}

func TestManifestIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"no arch":            func(m *Manifest) { m.Arch = "" },
		"parts that lack":    func(m *Manifest) { m.Parts = m.Parts[:1] },
		"parts too many":     func(m *Manifest) { m.Tar = 1 },
		"a part that is not": func(m *Manifest) { m.Parts[0] = "../../etc/passwd" },
		"a relative workdir": func(m *Manifest) { m.Workdir = "x" },
		"an unclean workdir": func(m *Manifest) { m.Workdir = "/x/../y" },
		"a strange user":     func(m *Manifest) { m.User = "-user" },
		"a strange variable": func(m *Manifest) { m.Env["A=B"] = "" },
		"a tar past bounds":  func(m *Manifest) { m.Tar = MaxTar + 1 },
		"files past bounds":  func(m *Manifest) { m.Files = MaxFiles + 1 },
	} {
		m := sample()
		change(&m)
		if _, _, err := m.Encode(); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	m := sample()
	b, _, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, id, err := Decode(b)
		if err != nil {
			return
		}
		if again, same, err := m.Encode(); err != nil || same != id || string(again) != string(b) {
			t.Errorf("%q: %s, %v", b, same, err)
		}
	})
}
