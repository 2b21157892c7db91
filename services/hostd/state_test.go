package hostd

import (
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// The cursor never passes a command that is not done, in whatever order they end.
func TestCursor(t *testing.T) {
	c := newCursor(10)
	steps := []struct {
		name  string
		do    func()
		place uint64
	}{
		{"nothing yet", func() {}, 10},
		{"one begun", func() { c.begin(12) }, 11},
		{"two more", func() { c.begin(13); c.begin(20) }, 11},
		{"a later one ends first", func() { c.end(13) }, 11},
		{"then the first", func() { c.end(12) }, 19},
		{"the first again", func() { c.end(12) }, 19},
		{"the last", func() { c.end(20) }, 20},
	}
	for _, s := range steps {
		s.do()
		if got := c.place(); got != s.place {
			t.Errorf("%s: at %d, want %d", s.name, got, s.place)
		}
	}
}

func TestJournalKeeps(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if rev, err := j.cursor(); rev != 0 || err != nil {
		t.Errorf("a new cursor: %d, %v", rev, err)
	}
	if err := j.setCursor(1 << 40); err != nil {
		t.Fatal(err)
	}
	for id, driver := range map[sandbox.ID]string{"a": "direct", "b": "namespace", "c": "direct"} {
		if err := j.setSandbox(id, made{driver: driver}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.forgetSandbox("c"); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(dir); err != nil {
		t.Fatal(err)
	}
	defer j.close() //nolint:errcheck // the end of the test
	rev, err := j.cursor()
	all, err2 := j.sandboxes()
	if rev != 1<<40 || err != nil || err2 != nil || len(all) != 2 || all["a"].driver != "direct" || all["b"].driver != "namespace" {
		t.Errorf("%d, %v, %v, %v", rev, err, all, err2)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Name: "h", DataDir: "d"}} {
		if err := setDefaults(&cfg); !kind.Is(err, kind.Invalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
