package builder

import (
	"os"
	"path/filepath"
	"testing"
)

// The directory of a killed gateway is removed, a directory in use is not.
func TestSweepScratch(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	used, done, err := newScratch()
	if err != nil {
		t.Fatal(err)
	}
	dead, other := filepath.Join(os.TempDir(), scratchPrefix+"dead"), filepath.Join(os.TempDir(), "other")
	for _, dir := range []string{filepath.Join(dead, "layer"), other} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	there := func(dir string) bool { _, err := os.Stat(dir); return err == nil }
	if sweepScratch(minScratchAge); !there(dead) {
		t.Error("a directory that may not be locked yet was removed")
	}
	if sweepScratch(0); there(dead) || !there(used) || !there(other) {
		t.Errorf("left: dead %v, used %v, other %v", there(dead), there(used), there(other))
	}
	if done(); there(used) {
		t.Error("the directory is left after done")
	}
}
