package templates

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

// sharing stores two templates that begin with the same part.
func sharing(t *testing.T, s *store) (raws [2][]byte, ms [2]template.Manifest) {
	t.Helper()
	same := entry{"same", strings.Repeat("s", template.PartSize-512), 0, 0o644, 0} // and its header
	for i, own := range []string{"a", "b"} {
		raws[i] = s.add(t, same, entry{"own", own, 0, 0o644, 0})
		var err error
		if ms[i], _, err = template.Decode(raws[i]); err != nil {
			t.Fatal(err)
		}
	}
	if ms[0].Parts[0] != ms[1].Parts[0] || ms[0].Parts[1] == ms[1].Parts[1] {
		t.Fatal("they do not share exactly their first part")
	}
	return raws, ms
}

func TestConcurrentFillsKeepASharedPart(t *testing.T) {
	s := newStore(t)
	raws, ms := sharing(t, s)
	dir := filepath.Join(t.TempDir(), "c")
	synctest.Test(t, func(t *testing.T) {
		gates := map[template.Sum]chan struct{}{ms[0].Parts[1]: make(chan struct{}), ms[1].Parts[1]: make(chan struct{})}
		c, err := Open(Config{Dir: dir, Source: source(func(ctx context.Context, sum template.Sum) ([]byte, error) {
			if gate := gates[sum]; gate != nil {
				<-gate
			}
			return s.Part(ctx, sum)
		})})
		if err != nil {
			t.Fatal(err)
		}
		errs := make([]error, len(raws))
		for i := range raws {
			go func() { _, errs[i] = c.Get(t.Context(), raws[i]) }()
			synctest.Wait() // it has the first part, and waits for its own
		}
		for i := range raws {
			close(gates[ms[i].Parts[1]])
			synctest.Wait()
			if errs[i] != nil {
				t.Errorf("template %d: %v", i, errs[i])
			}
		}
	})
}

func TestFailedFetchLeavesNoParts(t *testing.T) {
	s := newStore(t)
	raws, ms := sharing(t, s)
	if err := os.Remove(filepath.Join(s.dir, string(ms[0].Parts[1]))); err != nil {
		t.Fatal(err)
	}
	c := open(t, filepath.Join(t.TempDir(), "c"), s, 0)
	if _, err := c.Get(t.Context(), raws[0]); !kind.Is(err, kind.NotFound) {
		t.Fatalf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.cfg.Dir, partsName, "*")); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestUnusedPartsAreSwept(t *testing.T) {
	s := newStore(t)
	raw := s.add(t, small("a")...)
	dir := filepath.Join(t.TempDir(), "c")
	away := source(func(_ context.Context, sum template.Sum) ([]byte, error) {
		return nil, kind.New(kind.Unavailable, "read template", string(sum), "away")
	})
	c, err := Open(Config{Dir: dir, Source: away})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), raw); !kind.Is(err, kind.Unavailable) {
		t.Fatalf("got %v", err)
	}
	c = open(t, dir, s, 0)
	if left, _ := filepath.Glob(filepath.Join(dir, partsName, "*")); len(left) != 1 {
		t.Errorf("remaining after the next run: %v", left)
	}
	c.sweepParts(0)
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestFetchedPartsNeedNoSpace(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{string(template.SumOf(nil)): 5, newPrefix + "half": 7} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := fetchedBytes(dir); got != 5 {
		t.Errorf("%d bytes fetched, want 5", got)
	}
}

func TestLacksReportsMissingTemplatesThatFit(t *testing.T) {
	s := newStore(t)
	raws := [][]byte{s.add(t, small("here")...), s.add(t, small("away")...)}
	files := int64(len(small("")))
	c := open(t, filepath.Join(t.TempDir(), "c"), s, 2*files*perFile+12) // space for two of 5 bytes, and their files
	if _, err := c.Get(t.Context(), raws[0]); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		m, id, err := template.Decode(raws[i])
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Lacks(id, &m, 0); got != want {
			t.Errorf("template %d of %d bytes: %v", i, m.Size, got)
		}
		if m.Size = 8; c.Lacks(id, &m, 0) {
			t.Errorf("template %d of 8 bytes: lacking, though another one would have to be removed", i)
		}
	}
}
