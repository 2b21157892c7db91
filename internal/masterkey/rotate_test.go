package masterkey

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/seal"
)

// A new key comes first, the others stay until they are removed, and so do the file's mode and
// the links to it.
func TestKeysInAFileAreReplaced(t *testing.T) {
	dir := t.TempDir()
	target, old := filepath.Join(dir, "real"), seal.NewMaster()
	if err := os.WriteFile(target, []byte("# ours\n"+old+"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	k := Key{File: filepath.Join(dir, "link")}
	if err := os.Symlink(target, k.File); err != nil {
		t.Fatal(err)
	}
	before, err := read(k.File)
	if err != nil {
		t.Fatal(err)
	}
	m, err := k.Add()
	if err != nil {
		t.Fatal(err)
	}
	if ids := m.IDs(); len(ids) != 2 || ids[1] != before.ID() || ids[0] == ids[1] {
		t.Errorf("added: %q", ids)
	}
	if text, err := os.ReadFile(target); err != nil || !strings.Contains(string(text), "# ours\n") {
		t.Errorf("%q, %v", text, err)
	}
	now, err := k.KeepCurrent()
	if err != nil || !slices.Equal(now.IDs(), m.IDs()[:1]) {
		t.Errorf("kept: %q, %v", now.IDs(), err)
	}
	if text, err := os.ReadFile(target); err != nil || strings.Contains(string(text), old) {
		t.Errorf("the old key is left, %v", err)
	}
	if st, err := os.Stat(target); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("%d files, %v", len(all), err)
	}
	if _, err := (Key{File: filepath.Join(dir, "none")}).Add(); err == nil {
		t.Error("a file that does not exist was changed")
	}
	if err := os.WriteFile(target, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Add(); err == nil {
		t.Error("a key was added to a damaged file")
	}
}
