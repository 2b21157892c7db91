package users

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAccountsAreReadAgainWhenTheyChange: the file is read again if it may have changed,
// and only then.
func TestAccountsAreReadAgainWhenTheyChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	old := time.Now().Add(-time.Hour)
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	c := colonFile{path: path}
	for _, tt := range []struct {
		name   string
		change func()
		want   string
		kept   bool // the next call need not read it
	}{
		{"at first", func() { write("ann:x:1", old) }, "ann", true},
		{"unchanged", func() { c.text = []byte("from memory:x:1") }, "from memory", true},
		{"new text of the same length", func() { write("bob:x:1", old.Add(time.Second)) }, "bob", true},
		{"another file with the same name", func() {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			write("eve:x:1", old.Add(time.Second))
		}, "eve", true},
		{"changed a moment ago", func() { write("joe:x:1", time.Now()) }, "joe", false},
		{"no file", func() { os.Remove(path) }, "1", false},
	} {
		tt.change()
		if got := c.nameOf(1); !strings.HasPrefix(got, tt.want) || (c.seen != nil) != tt.kept && tt.want != "1" {
			t.Errorf("%s: %q, kept %v; want %q, %v", tt.name, got, c.seen != nil, tt.want, tt.kept)
		}
	}
}
