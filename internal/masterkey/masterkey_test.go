package masterkey

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/events/seal"
)

func nothing() {}

// Only a store without sealed data gets a new key.
func TestAKeyIsCreatedOnceForANewStore(t *testing.T) {
	k := Key{File: filepath.Join(t.TempDir(), "config", "millrace", "master.key")}
	for _, tt := range []struct{ may, create bool }{{true, false}, {false, true}, {false, false}} {
		if _, err := k.Source(tt.may, nothing)(t.Context(), tt.create); !errors.Is(err, seal.ErrMissing) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if _, err := os.Stat(k.File); err == nil {
		t.Fatal("a key was created for a store with data")
	}
	var created sync.Once
	ids, told := make([]string, 8), false
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			m, err := k.Source(true, func() { created.Do(func() { told = true }) })(t.Context(), true)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = m.ID()
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || !told {
			t.Fatalf("callers at once got %q, told %v", ids, told)
		}
	}
	st, err := os.Stat(k.File)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if rest, _ := os.ReadDir(filepath.Dir(k.File)); len(rest) != 1 {
		t.Errorf("%d files remain", len(rest))
	}
	if m, err := k.Source(false, nothing)(t.Context(), false); err != nil || m.ID() != ids[0] {
		t.Errorf("read again: %v", err)
	}
}

func TestCommands(t *testing.T) {
	key := seal.NewMaster()
	for _, tt := range []struct{ name, command, want string }{
		{"a key", "echo " + key, ""},
		{"a failure", "echo out of reach >&2; exit 3", "exit status 3: out of reach"},
		{"no key", "true", "no master key"},
		{"too much", "yes", "master key"},
	} {
		if tt.name == "too much" {
			tt.command = "yes | head -c 200000"
		}
		m, err := Key{Command: tt.command}.Source(true, nothing)(t.Context(), true)
		if tt.want == "" && (err != nil || m.ID() == "") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestKeysInADirectory(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		"data/key": true, "data/a/b/key": true, "link/key": true, "data": true, "key": false, "data2/key": false, "data/../key": false, "..key": false,
	} {
		if got := (Key{File: filepath.Join(dir, file)}).Inside(data); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
	if (Key{Command: "x"}).Inside(data) {
		t.Error("a command is in a directory")
	}
}

func TestChecks(t *testing.T) {
	k := Key{File: filepath.Join(t.TempDir(), "key")}
	if got := k.Check(); !strings.Contains(got, "does not exist") {
		t.Errorf("missing: %q", got)
	}
	if err := write(k.File); err != nil {
		t.Fatal(err)
	}
	if got := k.Check(); got != "" {
		t.Errorf("good: %q", got)
	}
	if err := os.Chmod(k.File, 0o640); err != nil {
		t.Fatal(err)
	}
	if got := k.Check(); !strings.Contains(got, "chmod 600") {
		t.Errorf("open to a group: %q", got)
	}
}

func TestDefaultFiles(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": "/home/a"}, "/home/a/.config/millrace/master.key"},
		{map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "/c"}, "/c/millrace/master.key"},
		{map[string]string{"HOME": "/home/a", "XDG_CONFIG_HOME": "c"}, "/home/a/.config/millrace/master.key"},
		{nil, systemFile},
	} {
		if got := DefaultFile(func(k string) string { return tt.env[k] }); got != tt.want {
			t.Errorf("%v: %s", tt.env, got)
		}
	}
}
