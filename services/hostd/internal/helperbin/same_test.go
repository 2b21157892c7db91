package helperbin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSameRejectsANewerSource: a source that changed after this program was built is not
// its own.
func TestSameRejectsANewerSource(t *testing.T) {
	root, err := source()
	if err != nil {
		t.Skip(err)
	}
	young := "services/hostd/internal/helperbin/young_" + filepath.Base(t.TempDir()) + ".d"
	if err := os.Mkdir(filepath.Join(root, young), 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Join(root, young)) })
	file := filepath.Join(root, young, "go.mod")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := Program{Name: "p", Main: young, Inputs: []string{young}}
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-24*365*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := p.same(); err != nil {
		t.Errorf("an old source: %v", err)
	}
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := p.same(); !errors.Is(err, ErrNoSource) {
		t.Errorf("a newer source: %v", err)
	}
}
