package templates

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

func TestFullDiskIsExhausted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small disk requires root")
	}
	s := newStore(t)
	var many []entry
	for i := range 200 {
		many = append(many, entry{fmt.Sprint(i), "x", 0, 0o644, 0})
	}
	raw := s.add(t, many...)
	for name, options := range map[string]string{"too few bytes": "size=1m", "too few files": "size=1g,nr_inodes=100"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
				t.Skipf("no tmpfs: %v", err)
			}
			defer syscall.Unmount(dir, 0)
			c := open(t, filepath.Join(dir, "c"), s, 0)
			_, err := c.Get(t.Context(), raw)
			if !kind.Is(err, kind.Exhausted) || !strings.Contains(kind.Message(err), "disk") {
				t.Errorf("got %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(c.cfg.Dir, "*")); len(left) != 1 {
				t.Errorf("remaining: %v", left)
			}
		})
	}
}

func TestFetchedPartsAreNotCountedTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small disk requires root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=71m"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, 0)
	c := open(t, filepath.Join(dir, "c"), newStore(t), 0)
	m := template.Manifest{Size: 1 << 20, Tar: template.PartSize} // 69 MiB in all, of which 4 are parts
	here, other := template.ID(template.SumOf([]byte("here"))), template.ID(template.SumOf([]byte("other")))
	if !c.Lacks(here, &m, 0) || !c.Lacks(other, &m, 0) {
		t.Fatal("no template fits at all")
	}
	if err := os.Mkdir(c.partsOf(here), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.partsOf(here), string(template.SumOf(nil))), make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if !c.Lacks(here, &m, 0) {
		t.Error("66 MiB do not fit into 68 free ones: fetched parts are counted again")
	}
	if c.Lacks(other, &m, 0) {
		t.Error("69 MiB fit into 68 free ones")
	}
}

// If the disk lacks inodes, as if it lacks bytes, unused trees are removed.
func TestUnusedTreesAreRemovedForInodes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a small disk requires root")
	}
	s := newStore(t)
	var many, more []entry
	for i := range 200 {
		many = append(many, entry{fmt.Sprint("a", i), "x", 0, 0o644, 0})
		more = append(more, entry{fmt.Sprint("b", i), "x", 0, 0o644, 0})
	}
	raws := [][]byte{s.add(t, many...), s.add(t, more...)}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1g,nr_inodes=300"); err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	defer syscall.Unmount(dir, 0)
	c := open(t, filepath.Join(dir, "c"), s, 0)
	first, err := c.Get(t.Context(), raws[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), raws[1]); !kind.Is(err, kind.Exhausted) {
		t.Errorf("beside one in use: %v", err)
	}
	if c.Shed() {
		t.Error("one in use was removed")
	}
	first.Release()
	second, err := c.Get(t.Context(), raws[1])
	if err != nil {
		t.Fatalf("beside an unused one: %v", err)
	}
	second.Release()
	if !c.Shed() || c.Shed() || len(c.Have()) > 0 {
		t.Errorf("unused trees were not removed, or twice: %v", c.Have())
	}
}
