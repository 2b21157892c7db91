package templates

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
)

// store is a Source of parts in a directory.
type store struct {
	dir string

	mu   sync.Mutex
	read map[template.Sum]int
}

func (s *store) Part(_ context.Context, sum template.Sum) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, string(sum)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, kind.New(kind.NotFound, "read template", string(sum), "not stored")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read == nil {
		s.read = map[template.Sum]int{}
	}
	s.read[sum]++
	return b, err
}

// source is a function as a Source.
type source func(context.Context, template.Sum) ([]byte, error)

func (s source) Part(ctx context.Context, sum template.Sum) ([]byte, error) { return s(ctx, sum) }

func (s *store) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, k := range s.read {
		n += k
	}
	return n
}

// entry is an entry of a test's tar.
type entry struct {
	name, body string
	flag       byte
	mode       int64
	uid        int
}

// add stores a template and returns its manifest.
func (s *store) add(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	m := template.Manifest{Arch: runtime.GOARCH, Files: int64(len(entries))}
	for _, e := range entries {
		h := tar.Header{Name: e.name, Mode: e.mode, Uid: e.uid, Gid: e.uid, Typeflag: e.flag, ModTime: time.Unix(9, 0)}
		body := ""
		if e.flag == 0 {
			h.Typeflag, h.Size, body = tar.TypeReg, int64(len(e.body)), e.body
		} else {
			h.Linkname = e.body
		}
		m.Size += h.Size
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return s.cut(t, b.Bytes(), m)
}

func (s *store) cut(t testing.TB, all []byte, m template.Manifest) []byte {
	t.Helper()
	p, err := part.New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m.Tar = int64(len(all))
	for c := range slices.Chunk(all, template.PartSize) {
		sum := template.SumOf(c)
		m.Parts = append(m.Parts, sum)
		if err := os.WriteFile(filepath.Join(s.dir, string(sum)), p.Pack(c), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, _, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func newStore(t testing.TB) *store {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &store{dir: dir}
}

func open(t testing.TB, dir string, s *store, most int64) *Cache {
	t.Helper()
	c, err := Open(Config{Dir: dir, Source: s, Max: most})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func small(name string) []entry {
	return []entry{{"etc/", "", tar.TypeDir, 0o755, 0}, {"etc/name", name, 0, 0o644, 0}, {"shut/", "", tar.TypeDir, 0o555, 0}, {"shut/x", "x", 0, 0o600, 0}}
}

func TestTreeMatchesItsTar(t *testing.T) {
	s := newStore(t)
	raw := s.add(t,
		entry{"d/", "", tar.TypeDir, 0o750, 1000}, entry{"d/suid", "x", 0, 0o4755, 0}, entry{"d/mine", "mine", 0, 0o600, 1000},
		entry{"link", "/etc/passwd", tar.TypeSymlink, 0o777, 0}, entry{"d/other", "d/mine", tar.TypeLink, 0o600, 1000})
	c := open(t, filepath.Join(t.TempDir(), "c"), s, 0)
	got, err := c.Get(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		mode fs.FileMode
		uid  uint32
	}{
		"d": {fs.ModeDir | 0o750, 1000}, "d/suid": {fs.ModeSetuid | 0o755, 0}, "d/mine": {0o600, 1000}, "d/other": {0o600, 1000}, "link": {fs.ModeSymlink | 0o777, 0},
	} {
		fi, err := os.Lstat(filepath.Join(got.Root, name))
		if err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 {
			want.uid, want.mode = uint32(os.Geteuid()), want.mode&^fs.ModeSetuid
			if fi.IsDir() {
				want.mode |= 0o700
			}
		}
		if st := fi.Sys().(*syscall.Stat_t); fi.Mode() != want.mode || st.Uid != want.uid {
			t.Errorf("%s: %v of %d, want %v of %d", name, fi.Mode(), st.Uid, want.mode, want.uid)
		}
		if !fi.ModTime().Equal(time.Unix(9, 0)) && name != "link" {
			t.Errorf("%s: time %v", name, fi.ModTime())
		}
	}
	a, _ := os.Stat(filepath.Join(got.Root, "d/mine"))
	b, _ := os.Stat(filepath.Join(got.Root, "d/other"))
	if !os.SameFile(a, b) {
		t.Error("the hard link is a separate file")
	}
	if fi, err := os.Stat(c.cfg.Dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("other users may reach set-uid files: %v, %v", fi.Mode(), err)
	}
}

func TestConcurrentGetsShareOneTree(t *testing.T) {
	s := newStore(t)
	raw := s.add(t, small("a")...)
	c := open(t, filepath.Join(t.TempDir(), "c"), s, 0)
	var wg sync.WaitGroup
	roots := make([]string, 20)
	for i := range roots {
		wg.Go(func() {
			got, err := c.Get(t.Context(), raw)
			if err != nil {
				t.Error(err)
				return
			}
			roots[i] = got.Root
		})
	}
	wg.Wait()
	if len(slices.Compact(roots)) != 1 || s.reads() != 1 {
		t.Errorf("roots %v, %d parts read", slices.Compact(roots), s.reads())
	}
	again := open(t, c.cfg.Dir, s, 0) // the next run has it
	if _, ok := again.Hold(again.Have()[0]); !ok || s.reads() != 1 {
		t.Errorf("the next run has %v, %d parts read", again.Have(), s.reads())
	}
}

func TestLongestUnusedTreeIsEvicted(t *testing.T) {
	s := newStore(t)
	raws := [][]byte{s.add(t, small("1")...), s.add(t, small("2")...), s.add(t, small("3")...)}
	c := open(t, filepath.Join(t.TempDir(), "c"), s, int64(2*len(small(""))*perFile+100)) // their files take more than their contents
	get := func(i int) *Tree {
		t.Helper()
		got, err := c.Get(t.Context(), raws[i])
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := get(0)
	get(1).Release()
	first.Release()
	first.Release() // the second call has no effect
	again := get(0)
	get(2).Release() // one must be evicted: the second, since the first is used
	if have := c.Have(); len(have) != 2 || !slices.Contains(have, again.t.id) {
		t.Errorf("have %v", have)
	}
	if b, err := os.ReadFile(filepath.Join(again.Root, "etc/name")); err != nil || string(b) != "1" {
		t.Errorf("a tree in use: %.10q, %v", b, err)
	}
	reads := s.reads()
	get(1)
	if s.reads() != reads+1 {
		t.Error("the evicted tree was not fetched again")
	}
	left, _ := filepath.Glob(filepath.Join(c.cfg.Dir, "*-*"))
	if len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestDamagedTemplatesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []entry
		change  func(*template.Manifest)
		spoil   func(*store, *template.Manifest)
		want    kind.Kind
	}{
		{name: "a missing part", spoil: func(s *store, m *template.Manifest) { os.Remove(filepath.Join(s.dir, string(m.Parts[0]))) }, want: kind.NotFound},
		{name: "a wrong part", spoil: func(s *store, m *template.Manifest) {
			os.WriteFile(filepath.Join(s.dir, string(m.Parts[0])), []byte("?"), 0o600)
		}, want: kind.Invalid},
		{name: "another architecture", change: func(m *template.Manifest) { m.Arch = "z80" }, want: kind.Invalid},
		{name: "more files than declared", change: func(m *template.Manifest) { m.Files-- }, want: kind.Invalid},
		{name: "fewer files than declared", change: func(m *template.Manifest) { m.Files++ }, want: kind.Invalid},
		{name: "more bytes than declared", change: func(m *template.Manifest) { m.Size-- }, want: kind.Invalid},
		{name: "a path with ..", entries: []entry{{"../x", "", 0, 0o644, 0}}, want: kind.Invalid},
		{name: "an absolute path", entries: []entry{{"/x", "", 0, 0o644, 0}}, want: kind.Invalid},
		{name: "a device", entries: []entry{{"x", "", tar.TypeChar, 0o644, 0}}, want: kind.Invalid},
		{name: "a file through a link to outside", entries: []entry{{"l", "/tmp", tar.TypeSymlink, 0o777, 0}, {"l/millrace-escaped", "", 0, 0o644, 0}}, want: kind.Internal},
		{name: "a link to a file outside", entries: []entry{{"l", "../../../etc/hostname", tar.TypeLink, 0o777, 0}}, want: kind.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			if tt.entries == nil {
				tt.entries = small("a")
			}
			raw := s.add(t, tt.entries...)
			m, _, err := template.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(&m)
				if raw, _, err = m.Encode(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.spoil != nil {
				tt.spoil(s, &m)
			}
			c := open(t, filepath.Join(t.TempDir(), "c"), s, 0)
			if got, err := c.Get(t.Context(), raw); !kind.Is(err, tt.want) {
				t.Errorf("got %+v, %v; want %v", got, err, tt.want)
			}
			if left, _ := filepath.Glob(filepath.Join(c.cfg.Dir, "*")); len(left) != 1 || len(c.Have()) > 0 {
				t.Errorf("remaining: %v, have %v", left, c.Have())
			}
			if left, _ := filepath.Glob(filepath.Join(c.cfg.Dir, partsName, "*")); len(left) > 0 {
				t.Errorf("remaining: %v", left)
			}
			if _, err := os.Lstat("/tmp/millrace-escaped"); err == nil {
				t.Error("a file was written outside")
			}
		})
	}
}

// killVariable makes the test binary one that fetches a template and is killed.
const killVariable = "TEMPLATES_TEST_KILL"

func TestMain(m *testing.M) {
	if spec := os.Getenv(killVariable); spec != "" {
		f := strings.Split(spec, "|")
		raw, err := os.ReadFile(f[2])
		if err == nil {
			var c *Cache
			if c, err = Open(Config{Dir: f[0], Source: &store{dir: f[1]}}); err == nil {
				fmt.Println("begun")
				_, err = c.Get(context.Background(), raw)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// After a kill of a host at any point of a fetch, the next run finds no tree or a
// complete one.
func TestKilledFetchLeavesNoPartialTree(t *testing.T) {
	s := newStore(t)
	var entries []entry
	for i := range 300 {
		entries = append(entries, entry{fmt.Sprintf("f%03d", i), strings.Repeat(string(rune('a'+i%26)), 100_000), 0, 0o644, 0})
	}
	raw := s.add(t, entries...)
	manifest := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(manifest, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "c")
	killed, whole := 0, false
	for wait := time.Duration(0); !whole && wait < 5*time.Second; wait = wait*5/4 + 4*time.Millisecond {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killVariable+"="+strings.Join([]string{dir, s.dir, manifest}, "|"))
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 1)) // it has begun
		kill := time.AfterFunc(wait, func() { cmd.Process.Kill() })
		err = cmd.Wait()
		kill.Stop()
		whole = err == nil
		if !whole {
			killed++
		}
		for _, id := range open(t, dir, s, 0).Have() {
			checkWhole(t, filepath.Join(dir, string(id), treeName), entries)
		}
	}
	if !whole || killed == 0 {
		t.Fatalf("killed %d times, then complete: %v", killed, whole)
	}
	t.Logf("killed %d times", killed)
	c := open(t, dir, s, 0)
	got, err := c.Get(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, got.Root, entries)
	if left, _ := filepath.Glob(filepath.Join(dir, "new-*")); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func checkWhole(t *testing.T, root string, entries []entry) {
	t.Helper()
	for _, e := range entries {
		if b, err := os.ReadFile(filepath.Join(root, e.name)); err != nil || string(b) != e.body {
			t.Fatalf("partial tree: %s has %d bytes, %v", e.name, len(b), err)
		}
	}
}

// Parts that were fetched before an interruption are not fetched again.
func TestFetchResumes(t *testing.T) {
	s := newStore(t)
	var noise []entry
	for i := range 5 {
		noise = append(noise, entry{fmt.Sprint(i), strings.Repeat(string(rune('a'+i)), template.PartSize-2048), 0, 0o644, 0})
	}
	raw := s.add(t, noise...)
	m, _, err := template.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "c")
	cut, id := m.Parts[len(m.Parts)-1], template.ID(template.SumOf(raw))
	c, err := Open(Config{Dir: dir, Source: source(func(ctx context.Context, sum template.Sum) ([]byte, error) {
		if sum == cut {
			return nil, kind.New(kind.Unavailable, "read template", string(sum), "cut off")
		}
		return s.Part(ctx, sum)
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), raw); !kind.Is(err, kind.Unavailable) {
		t.Fatalf("without its last part: %v", err)
	}
	came, _ := filepath.Glob(filepath.Join(dir, partsName, string(id), "*"))
	before := s.reads()
	if _, err := open(t, dir, s, 0).Get(t.Context(), raw); err != nil {
		t.Fatal(err)
	}
	if want := len(m.Parts) - len(came); s.reads()-before != want || len(came) == 0 {
		t.Errorf("read %d parts more, want %d of %d", s.reads()-before, want, len(m.Parts))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, partsName, "*")); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("already running as an ordinary user")
	}
	dir, err := os.MkdirTemp("", "templates-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^(TestTreeMatchesItsTar|TestConcurrentGetsShareOneTree|TestLongestUnusedTreeIsEvicted|TestDamagedTemplatesAreRefused|TestUnusedTreesAreRemovedForInodes|TestFetchResumes|TestCopyEqualsTheTree)$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestTreeMatches") {
		t.Errorf("%v\n%s", err, out)
	}
}
