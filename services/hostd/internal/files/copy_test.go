//go:build linux

package files

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

func TestCopyOfATree(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/a/f", "content")
	r.put(t, "home/u/a/sub/g", "g")
	r.put(t, "home/u/a/"+hiddenNew+"0123456789abcdef", "being written")
	if err := os.Chmod(r.at("home/u/a/sub/g"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.at("home/u/a/sub"), 0o710); err != nil {
		t.Fatal(err)
	}
	r.link(t, "sub/g", "home/u/a/l")
	r.link(t, "/nowhere", "home/u/a/dangling")
	if err := unix.Mkfifo(r.at("home/u/a/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.put(t, "home/u/b/sub/kept", "kept") // the copy goes into what exists
	r.put(t, "home/u/b/f", "old")
	es, err := r.ask(t, file.Request{Op: file.OpCopy, Path: "a", To: "b"})
	if err != nil || len(es) != 1 || es[0].GetPath() != "/home/u/b" {
		t.Fatalf("got %v, %v", es, err)
	}
	all, err := r.ask(t, file.Request{Op: file.OpList, Path: "b", Depth: 9})
	want := []string{"/home/u/b/dangling", "/home/u/b/f", "/home/u/b/l", "/home/u/b/sub", "/home/u/b/sub/g", "/home/u/b/sub/kept"}
	if got := paths(all); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := r.read(t, "b/f", file.Range{Length: -1}); got != "content" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if to, err := os.Readlink(r.at("home/u/b/dangling")); to != "/nowhere" || err != nil {
		t.Errorf("the link leads to %s, %v", to, err)
	}
	if fi, err := os.Stat(r.at("home/u/b/sub/g")); err != nil || fi.Mode().Perm() != 0o750 {
		t.Errorf("got %v, %v", fi, err)
	}
	if es, err = r.ask(t, file.Request{Op: file.OpCopy, Path: "a", To: "c/d"}); err != nil || len(es) != 1 {
		t.Errorf("to a directory with missing parents: %v, %v", es, err)
	}
	if fi, err := os.Stat(r.at("home/u/c/d/sub")); err != nil || fi.Mode().Perm() != 0o710 {
		t.Errorf("got %v, %v", fi, err)
	}
}

func TestCopies(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "content")
	r.put(t, "home/u/d/f", "f")
	r.put(t, "home/u/old", "old")
	r.link(t, "f", "home/u/l")
	r.link(t, "d", "home/u/ld")
	r.link(t, "old", "home/u/to-old")
	tests := []struct {
		name, from, to string
		single         bool
		want           kind.Kind // 0: none
	}{
		{"a file", "f", "copy", true, 0},
		{"over a file", "f", "copy", true, 0},
		{"a file to itself", "f", "f", true, 0},
		{"through a link", "f", "to-old", true, 0},
		{"a link", "l", "copy-of-l", true, 0},
		{"a link over a file", "l", "copy", true, kind.Conflict},
		{"a link to a directory", "ld", "copy-of-ld", true, 0},
		{"a file to a directory", "f", "d", true, kind.Invalid},
		{"to a missing directory", "f", "missing/f", true, kind.NotFound},
		{"a missing file", "missing", "x", true, kind.NotFound},
		{"a directory as a file", "d", "x", true, kind.Invalid},
		{"a directory to itself", "d", "d", false, kind.Invalid},
		{"a directory into itself", "d", "d/x", false, kind.Invalid},
		{"a directory into itself, by a link", "d", "ld/x", false, kind.Invalid},
		{"a directory over a file", "d", "f", false, kind.Invalid},
		{"the root", "/", "x", false, kind.Invalid},
		{"a climbing path", "../../../../home/u/f", "../../../../../home/u/climbed", true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := r.ask(t, file.Request{Op: file.OpCopy, Path: tt.from, To: tt.to, Single: tt.single})
			if (err != nil) != (tt.want != 0) || err != nil && !kind.Is(err, tt.want) {
				t.Errorf("got %v, want kind %v", err, tt.want)
			}
		})
	}
	if got, err := r.read(t, "old", file.Range{Length: -1}); got != "content" || err != nil {
		t.Errorf("through a link: %q, %v", got, err)
	}
	if to, err := os.Readlink(r.at("home/u/copy-of-ld")); to != "d" || err != nil {
		t.Errorf("the copy of a link is %s, %v", to, err)
	}
	if names, err := os.ReadDir(r.at("home/u/d")); len(names) != 1 || err != nil {
		t.Errorf("a failed copy left %v, %v", names, err)
	}
}

// A copy of a file with holes takes no more space than the file.
func TestCopyKeepsHoles(t *testing.T) {
	r := newRig(t)
	f, err := os.Create(r.at("home/u/sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("middle"), 512<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Skip(err)
	}
	f.Close()
	if _, err := r.ask(t, file.Request{Op: file.OpCopy, Path: "sparse", To: "copy"}); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(r.at("home/u/copy"), &st); err != nil || st.Size != 1<<40 || st.Blocks > 1<<14 {
		t.Errorf("got %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	if got, err := r.read(t, "copy", file.Range{Offset: 512 << 20, Length: 6}); got != "middle" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRemoveOfOneFile(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/d/f", "f")
	if err := os.Mkdir(r.at("home/u/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.link(t, "d", "home/u/l")
	tests := []struct {
		path           string
		single, exists bool
		want           kind.Kind
	}{
		{"d", true, false, kind.Invalid},
		{"empty", true, true, 0},
		{"empty", true, true, kind.NotFound},
		{"empty", true, false, 0},
		{"missing/x", false, true, kind.NotFound},
		{"missing/x", false, false, 0},
		{"l", true, true, 0},
		{"d", false, true, 0},
	}
	for _, tt := range tests {
		_, err := r.ask(t, file.Request{Op: file.OpRemove, Path: tt.path, Single: tt.single, Exists: tt.exists})
		if (err != nil) != (tt.want != 0) || err != nil && !kind.Is(err, tt.want) {
			t.Errorf("%s: got %v, want kind %v", tt.path, err, tt.want)
		}
	}
}

func TestSingleCreatesNoParents(t *testing.T) {
	r := newRig(t)
	if err := r.write(t, file.Request{Path: "missing/f", Single: true}, "x", true); !kind.Is(err, kind.NotFound) {
		t.Errorf("write: %v", err)
	}
	if err := r.write(t, file.Request{Path: "f", Single: true}, "x", true); err != nil {
		t.Errorf("write: %v", err)
	}
	for _, tt := range []struct {
		path string
		want kind.Kind
	}{{"missing/d", kind.NotFound}, {"d", 0}, {"d", kind.Conflict}, {"f", kind.Invalid}, {"f/d", kind.Invalid}, {"/", kind.Conflict}} {
		_, err := r.ask(t, file.Request{Op: file.OpMakeDir, Path: tt.path, Single: true})
		if (err != nil) != (tt.want != 0) || err != nil && !kind.Is(err, tt.want) {
			t.Errorf("%s: got %v, want kind %v", tt.path, err, tt.want)
		}
	}
}

func TestResolve(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/d/f", "12345")
	r.link(t, "/home/u/d", "home/u/l")
	r.link(t, strings.Repeat("../", 20)+"home/u/l/f", "home/u/climbs")
	r.link(t, "nowhere", "home/u/broken")
	r.link(t, "round", "home/u/round")
	for _, tt := range []struct {
		path, want string
		kind       kind.Kind
	}{
		{"d/f", "/home/u/d/f", 0}, {"l/f", "/home/u/d/f", 0}, {"l", "/home/u/d", 0}, {"climbs", "/home/u/d/f", 0}, {"/", "/", 0},
		{"broken", "", kind.NotFound}, {"round", "", kind.Precondition}, {"d/f/x", "", kind.Invalid},
	} {
		es, err := r.ask(t, file.Request{Op: file.OpResolve, Path: tt.path})
		switch {
		case tt.kind != 0:
			if !kind.Is(err, tt.kind) {
				t.Errorf("%s: got %v, want kind %v", tt.path, err, tt.kind)
			}
		case err != nil || len(es) != 1 || es[0].GetPath() != tt.want:
			t.Errorf("%s: got %v, %v; want %s", tt.path, es, err, tt.want)
		case (es[0].SymlinkTarget != nil) != (tt.path == "l" || tt.path == "climbs"):
			t.Errorf("%s: link to %v", tt.path, es[0].SymlinkTarget)
		case tt.path == "d/f" && (es[0].GetSize() != 5 || es[0].GetCreatedTime() == nil):
			t.Errorf("got %v", es[0])
		}
	}
}

// find walks, and returns what was found.
func (r *rig) find(t testing.TB, req file.Request) ([]file.Found, error) {
	t.Helper()
	req.Op = file.OpWalk
	var out []file.Found
	err := r.exchange(t, req, func(c streamConn) {
		for {
			b, err := file.ReadFrame(c, nil)
			if err != nil {
				return
			}
			f, err := file.ParseFound(b)
			if err != nil {
				t.Error(err)
			}
			out = append(out, f)
		}
	})
	return out, err
}

func TestWalk(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"w/a/x", "w/.h/y", "w/f", "w/b/c/d"} {
		r.put(t, "home/u/"+p, "")
	}
	r.link(t, "../w", "home/u/w/loop")
	r.link(t, "nowhere", "home/u/w/dangling")
	r.link(t, "f", "home/u/w/lf")
	all := file.Request{Depth: 9, MaxDirs: 99, MaxEntries: 99}
	with := func(change func(*file.Request)) file.Request {
		req := all
		change(&req)
		return req
	}
	tests := []struct {
		name string
		req  file.Request
		want string
	}{
		{"all", all, ".h/ a/ b/ f lf .h/y a/x b/c/ b/c/d"},
		{"links are followed", with(func(r *file.Request) { r.Follow = true }), ".h/ a/ b/ f lf loop/ .h/y a/x b/c/ b/c/d"},
		{"hidden directories are not entered", with(func(r *file.Request) { r.SkipHidden = true }), ".h/ a/ b/ f lf a/x b/c/ b/c/d"},
		{"the depth", with(func(r *file.Request) { r.Depth = 0 }), ".h/ a/ b/ f lf truncated"},
		{"the number of directories", with(func(r *file.Request) { r.MaxDirs = 2 }), ".h/ a/ b/ f lf .h/y truncated"},
		{"no directories", with(func(r *file.Request) { r.MaxDirs = 0 }), "truncated"},
		{"the number of entries", with(func(r *file.Request) { r.MaxEntries = 4 }), ".h/ a/ b/ f truncated"},
		{"all entries and no more", with(func(r *file.Request) { r.MaxEntries = 9 }), ".h/ a/ b/ f lf .h/y a/x b/c/ b/c/d"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Path = "w"
			found, err := r.find(t, tt.req)
			var got []string
			for _, f := range found {
				name := strings.TrimPrefix(f.Path, "/home/u/w/")
				switch {
				case f.Truncated:
					name = "truncated"
				case f.Dir:
					name += "/"
				}
				got = append(got, name)
			}
			if err != nil || strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, %v; want %s", got, err, tt.want)
			}
		})
	}
	if _, err := r.find(t, with(func(r *file.Request) { r.Path = "w/f" })); !kind.Is(err, kind.Invalid) {
		t.Errorf("a file: %v", err)
	}
}
