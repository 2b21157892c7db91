package confine

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// tree makes files and directories (with a final slash) below a new directory.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestGrants(t *testing.T) {
	root := tree(t, "w/.git/hooks/", "w/src/", "w/a.txt", "w/sub/.git/", "w/sub/b/", "other/secret/", "other/c")
	if err := os.Symlink("../other", filepath.Join(root, "w/link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		c    process.Confinement
		want map[string]Access
	}{
		{"read only", process.Confinement{Read: []string{"."}}, map[string]Access{".": Read}},
		{"a writable directory", process.Confinement{Read: []string{"."}, Write: []string{"w"}}, map[string]Access{".": Read, "w": Write}},
		{"a read-only directory in a writable one", process.Confinement{Read: []string{"w/.git"}, Write: []string{"w"}},
			map[string]Access{"w": Read, "w/.git": Read, "w/src": Write, "w/a.txt": Write, "w/sub": Write, "w/link": Write}},
		{"one further below", process.Confinement{Read: []string{"w/sub/.git"}, Write: []string{"w"}},
			map[string]Access{"w": Read, "w/.git": Write, "w/src": Write, "w/a.txt": Write, "w/sub": Read, "w/sub/.git": Read, "w/sub/b": Write, "w/link": Write}},
		{"a denied directory", process.Confinement{Read: []string{"other"}, Deny: []string{"other/secret"}}, map[string]Access{"other/c": Read}},
		{"a readable directory in a denied one", process.Confinement{Read: []string{"w", "w/.git/hooks"}, Deny: []string{"w/.git"}},
			map[string]Access{"w/.git/hooks": Read, "w/src": Read, "w/a.txt": Read, "w/sub": Read, "w/link": Read}},
		{"of one path the denial counts", process.Confinement{Read: []string{"w"}, Write: []string{"w"}, Deny: []string{"w"}}, map[string]Access{}},
		{"a link and its target", process.Confinement{Read: []string{"w/link"}, Write: []string{"."}},
			map[string]Access{".": Read, "other": Read, "w": Read, "w/.git": Write, "w/src": Write, "w/a.txt": Write, "w/sub": Write, "w/link": Read}},
		{"an optional path that is missing", process.Confinement{Write: []string{"w"}, Read: []string{"w/.codex"}, Optional: []string{"w/.codex"}}, map[string]Access{"w": Write}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, list := range [][]string{tt.c.Read, tt.c.Write, tt.c.Deny, tt.c.Optional} {
				for i := range list {
					list[i] = filepath.Join(root, list[i])
				}
			}
			p, err := newPolicy(&tt.c)
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]Access)
			err = p.grant(func(path string, access Access) error {
				if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
					got[rel] = access
				}
				return nil
			})
			if err != nil || !maps.Equal(got, tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestMissingPathsAreInvalid(t *testing.T) {
	root := tree(t, "w/")
	for _, c := range []process.Confinement{{Read: []string{root + "/w/.git"}}, {Write: []string{root + "/no/such"}}, {Deny: []string{root + "/w/x"}}} {
		if _, err := New(&c); !kind.Is(err, kind.Invalid) && Check() == nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
