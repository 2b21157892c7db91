package builder

import (
	"os"
	"path/filepath"
	"testing"
)

// What a killed gateway left of an image goes, what one is at work in stays.
func TestScratchesOfTheDeadGo(t *testing.T) {
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
	if sweepScratch(young); !there(dead) {
		t.Error("one that may be about to be locked was removed")
	}
	if sweepScratch(0); there(dead) || !there(used) || !there(other) {
		t.Errorf("there are: dead %v, used %v, other %v", there(dead), there(used), there(other))
	}
	if done(); there(used) {
		t.Error("it stays when it is done")
	}
}
