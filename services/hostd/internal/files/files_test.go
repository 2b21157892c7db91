//go:build linux

package files

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// end is the server's end of a stream.
type end struct {
	*net.UnixConn
	err    error
	broken chan func() // receives what is called when the stream breaks; nil: not
}

func (*end) Accept() {}

func (e *end) AfterBreak(f func()) func() {
	if e.broken != nil {
		e.broken <- f
	}
	return func() {}
}

func (e *end) Abort(err error) {
	e.err = err
	e.Close()
}

// rig is a server with a directory of its own.
type rig struct {
	*Server
	root string
}

func newRig(t testing.TB) *rig {
	root := t.TempDir()
	for _, dir := range []string{"home/u", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Config{
		Root: root,
		Lookup: func(user string) (Account, error) {
			if user != "" && user != "u" {
				return Account{}, kind.New(kind.Unauthenticated, "lookup", "", "no such user")
			}
			return Account{Home: "/home/u", UID: 1234, GID: 4321}, nil
		},
		Name: func(_ bool, id uint32) string { return fmt.Sprint(id) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &rig{s, root}
}

// pipe returns the two ends of a stream.
func pipe(t testing.TB) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		out[i] = c.(*net.UnixConn)
	}
	return out[0], out[1]
}

// exchange sends a request, and passes the client's end to with.
func (r *rig) exchange(t testing.TB, req file.Request, with func(c *net.UnixConn)) error {
	t.Helper()
	ours, theirs := pipe(t)
	defer ours.Close()
	e := &end{UnixConn: theirs}
	var wg sync.WaitGroup
	wg.Go(func() { r.Serve(e) })
	if _, err := ours.Write(file.AppendFrame(nil, req.Append(nil))); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Fatal(err)
	}
	with(ours)
	ours.Close()
	wg.Wait()
	return e.err
}

// ask sends a request without content, and returns the entries.
func (r *rig) ask(t testing.TB, req file.Request) ([]*pb.EntryInfo, error) {
	t.Helper()
	var out []*pb.EntryInfo
	err := r.exchange(t, req, func(c *net.UnixConn) {
		c.CloseWrite()
		for {
			b, err := file.ReadFrame(c, nil)
			if err != nil {
				return
			}
			e := &pb.EntryInfo{}
			if err := proto.Unmarshal(b, e); err != nil {
				t.Fatal(err)
			}
			out = append(out, e)
		}
	})
	return out, err
}

func (r *rig) write(t testing.TB, req file.Request, content string, whole bool) error {
	t.Helper()
	req.Op = file.OpWrite
	return r.exchange(t, req, func(c *net.UnixConn) {
		io.WriteString(c, content)
		if !whole {
			return
		}
		c.CloseWrite()
		io.Copy(io.Discard, c)
	})
}

func (r *rig) read(t testing.TB, p string, part file.Range) (string, error) {
	t.Helper()
	var out []byte
	err := r.exchange(t, file.Request{Op: file.OpRead, Path: p}, func(c *net.UnixConn) {
		if _, err := file.ReadFrame(c, nil); err != nil {
			return
		}
		c.Write(file.AppendFrame(nil, part.Append(nil)))
		out, _ = io.ReadAll(c)
	})
	return string(out), err
}

func (r *rig) at(p string) string { return filepath.Join(r.root, p) }

func (r *rig) put(t testing.TB, p, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.at(p)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.at(p), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) link(t testing.TB, to, p string) {
	t.Helper()
	if err := os.Symlink(to, r.at(p)); err != nil {
		t.Fatal(err)
	}
}

func paths(es []*pb.EntryInfo) []string {
	var out []string
	for _, e := range es {
		out = append(out, e.GetPath())
	}
	return out
}

func TestStatDescribesFilesDirectoriesAndLinks(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "12345")
	r.link(t, "f", "home/u/l")
	r.link(t, "/home/u", "home/u/d")
	r.link(t, "nowhere", "home/u/broken")
	r.link(t, "round", "home/u/round")
	r.put(t, "home/u/\xff", "12345")
	r.link(t, "\xff", "home/u/latin")
	tests := []struct {
		path, want string
		size       int64
		kind       pb.FileType
		target     string
		perms      string
	}{
		{"f", "/home/u/f", 5, pb.FileType_FILE_TYPE_FILE, "", "-rw-r--r--"},
		{"~/f", "/home/u/f", 5, pb.FileType_FILE_TYPE_FILE, "", "-rw-r--r--"},
		{"/home/./x/../u/f", "/home/u/f", 5, pb.FileType_FILE_TYPE_FILE, "", "-rw-r--r--"},
		{"../../../../../home/u/f", "/home/u/f", 5, pb.FileType_FILE_TYPE_FILE, "", "-rw-r--r--"},
		{"", "/home/u", -1, pb.FileType_FILE_TYPE_DIRECTORY, "", "drwxr-xr-x"},
		{"/", "/", -1, pb.FileType_FILE_TYPE_DIRECTORY, "", "drwxr-xr-x"},
		{"l", "/home/u/l", 1, pb.FileType_FILE_TYPE_FILE, "/home/u/f", "Lrwxrwxrwx"},
		{"d", "/home/u/d", 7, pb.FileType_FILE_TYPE_DIRECTORY, "/home/u", "Lrwxrwxrwx"},
		{"broken", "/home/u/broken", 7, pb.FileType_FILE_TYPE_UNSPECIFIED, "/home/u/broken", "Lrwxrwxrwx"},
		{"latin", "/home/u/latin", 1, pb.FileType_FILE_TYPE_FILE, "/home/u/\ufffd", "Lrwxrwxrwx"},
		{"round", "/home/u/round", 5, pb.FileType_FILE_TYPE_UNSPECIFIED, "/home/u/round", "Lrwxrwxrwx"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			es, err := r.ask(t, file.Request{Op: file.OpStat, Path: tt.path})
			if err != nil || len(es) != 1 {
				t.Fatalf("%d entries, %v", len(es), err)
			}
			e := es[0]
			if e.GetPath() != tt.want || e.GetType() != tt.kind || e.GetSymlinkTarget() != tt.target || e.GetPermissions() != tt.perms {
				t.Errorf("got %v", e)
			}
			if tt.size >= 0 && e.GetSize() != tt.size {
				t.Errorf("size %d, want %d", e.GetSize(), tt.size)
			}
		})
	}
}

func TestErrorsHaveTheirKind(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "x")
	r.link(t, "round", "home/u/round")
	if err := unix.Mkfifo(r.at("home/u/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.at("home/u/sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	tests := []struct {
		name string
		req  file.Request
		want kind.Kind
	}{
		{"stat of a missing file", file.Request{Op: file.OpStat, Path: "no"}, kind.NotFound},
		{"stat below a file", file.Request{Op: file.OpStat, Path: "f/x"}, kind.Invalid},
		{"list of a missing directory", file.Request{Op: file.OpList, Path: "no"}, kind.NotFound},
		{"list of a file", file.Request{Op: file.OpList, Path: "f"}, kind.Invalid},
		{"list of a loop", file.Request{Op: file.OpList, Path: "round"}, kind.Precondition},
		{"an existing directory", file.Request{Op: file.OpMakeDir, Path: "/home"}, kind.Conflict},
		{"a directory in place of a file", file.Request{Op: file.OpMakeDir, Path: "f"}, kind.Invalid},
		{"a directory below a file", file.Request{Op: file.OpMakeDir, Path: "f/x"}, kind.Invalid},
		{"a move of a missing file", file.Request{Op: file.OpMove, Path: "no", To: "yes/x"}, kind.NotFound},
		{"a move of the root", file.Request{Op: file.OpMove, Path: "/", To: "x"}, kind.Invalid},
		{"removal of the root", file.Request{Op: file.OpRemove, Path: "/"}, kind.Invalid},
		{"reading a missing file", file.Request{Op: file.OpRead, Path: "no"}, kind.NotFound},
		{"reading a directory", file.Request{Op: file.OpRead, Path: "/home"}, kind.Invalid},
		{"reading a FIFO", file.Request{Op: file.OpRead, Path: "fifo"}, kind.Invalid},
		{"writing a directory", file.Request{Op: file.OpWrite, Path: "/home"}, kind.Invalid},
		{"writing a path with a trailing slash", file.Request{Op: file.OpWrite, Path: "/home/u/new/"}, kind.Invalid},
		{"writing a FIFO", file.Request{Op: file.OpWrite, Path: "fifo"}, kind.Invalid},
		{"writing a loop", file.Request{Op: file.OpWrite, Path: "round"}, kind.Precondition},
		{"an unknown user", file.Request{Op: file.OpStat, Path: "f", User: "nobody"}, kind.Unauthenticated},
		{"another user's home", file.Request{Op: file.OpStat, Path: "~root/f"}, kind.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := r.ask(t, tt.req); !kind.Is(err, tt.want) {
				t.Errorf("got %v, want kind %v", err, tt.want)
			}
		})
	}
	for _, p := range []string{"fifo", "sock"} {
		if _, err := r.read(t, p, file.Range{Length: -1}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("reading the %s: %v", p, err)
		}
	}
	if _, err := os.Lstat(r.at("home/u/yes")); err == nil {
		t.Error("a failed move created directories")
	}
	if _, err := os.Lstat(r.at("home/u/new")); err == nil {
		t.Error("a failed write left a file")
	}
}

func TestListIsSortedAndLimitedInDepth(t *testing.T) {
	r := newRig(t)
	for _, f := range []string{"b", "a/y", "a/x/deep", "c/z"} {
		r.put(t, "tmp/"+f, "")
	}
	r.put(t, "tmp/"+hiddenNew+strings.Repeat("0", hiddenRandom), "half")
	r.link(t, "/tmp/a", "tmp/l")
	r.link(t, "/tmp", "via")
	tests := []struct {
		path  string
		depth uint32
		want  []string
	}{
		{"/tmp", 0, []string{"/tmp/a", "/tmp/b", "/tmp/c", "/tmp/l"}},
		{"/tmp", 2, []string{"/tmp/a", "/tmp/a/x", "/tmp/a/y", "/tmp/b", "/tmp/c", "/tmp/c/z", "/tmp/l"}},
		{"/via", 1, []string{"/via/a", "/via/b", "/via/c", "/via/l"}},
		{"/tmp/l", 9, []string{"/tmp/l/x", "/tmp/l/x/deep", "/tmp/l/y"}},
	}
	for _, tt := range tests {
		es, err := r.ask(t, file.Request{Op: file.OpList, Path: tt.path, Depth: tt.depth})
		if got := paths(es); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s, depth %d: got %v, %v; want %v", tt.path, tt.depth, got, err, tt.want)
		}
	}
}

func TestDirectoriesAreCreatedMovedAndRemoved(t *testing.T) {
	r := newRig(t)
	es, err := r.ask(t, file.Request{Op: file.OpMakeDir, Path: "a/b/c"})
	if err != nil || es[0].GetPath() != "/home/u/a/b/c" || es[0].GetType() != pb.FileType_FILE_TYPE_DIRECTORY {
		t.Fatalf("%v, %v", es, err)
	}
	if os.Geteuid() == 0 && (es[0].GetOwner() != "1234" || es[0].GetGroup() != "4321") {
		t.Errorf("owner %s, group %s", es[0].GetOwner(), es[0].GetGroup())
	}
	r.put(t, "home/u/a/b/f", "moved")
	if es, err = r.ask(t, file.Request{Op: file.OpMove, Path: "a", To: "new/parent/a"}); err != nil || es[0].GetPath() != "/home/u/new/parent/a" {
		t.Fatalf("%v, %v", es, err)
	}
	if got, err := os.ReadFile(r.at("home/u/new/parent/a/b/f")); string(got) != "moved" {
		t.Errorf("%q, %v", got, err)
	}
	if es, err = r.ask(t, file.Request{Op: file.OpMove, Path: "new/parent", To: "/home/u/new/parent"}); err != nil || es[0].GetPath() != "/home/u/new/parent" {
		t.Fatalf("onto itself: %v, %v", es, err)
	}
	r.put(t, "keep/f", "kept")
	r.link(t, "/keep", "home/u/new/link")
	for range 2 { // removing a missing file succeeds
		if _, err := r.ask(t, file.Request{Op: file.OpRemove, Path: "~/new"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(r.at("home/u/new")); err == nil {
		t.Error("the directory still exists")
	}
	if _, err := os.Stat(r.at("keep/f")); err != nil {
		t.Error("a link was followed:", err)
	}
}

// A tree of thousands of nested directories must not use up the descriptors that hostd's
// sandboxes share.
func TestDeepTreeIsRefused(t *testing.T) {
	r := newRig(t)
	at, err := unix.Open(r.at("home/u"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range maxLevels + 2 {
		next := -1
		if err == nil {
			err = unix.Mkdirat(at, "d", 0o755)
		}
		if err == nil {
			next, err = unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		unix.Close(at)
		at = next
	}
	if err := errors.Join(err, unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ask(t, file.Request{Op: file.OpList, Path: "~", Depth: 1 << 20}); !kind.Is(err, kind.Invalid) {
		t.Errorf("listed: %v", err)
	}
	if _, err := r.ask(t, file.Request{Op: file.OpRemove, Path: "~/d"}); !kind.Is(err, kind.Invalid) {
		t.Errorf("removed: %v", err)
	}
	if es, err := r.ask(t, file.Request{Op: file.OpList, Path: "~", Depth: 5}); err != nil || len(es) != 5 {
		t.Errorf("%d of the first levels, %v", len(es), err)
	}
	if _, err := r.ask(t, file.Request{Op: file.OpRemove, Path: "~/d/d"}); err != nil {
		t.Errorf("one level less: %v", err)
	}
}

func TestContentIsWrittenAndRead(t *testing.T) {
	r := newRig(t)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	meta := map[string]string{"kind": "test", "n": "1"}
	if err := r.write(t, file.Request{Path: "new/dir/f", Meta: meta}, big, true); err != nil {
		if !kind.Is(err, kind.Unimplemented) {
			t.Fatal(err)
		}
		meta = nil // the file system does not support attributes
		if err := r.write(t, file.Request{Path: "new/dir/f"}, big, true); err != nil {
			t.Fatal(err)
		}
	}
	es, err := r.ask(t, file.Request{Op: file.OpStat, Path: "new/dir/f"})
	if err != nil || es[0].GetSize() != int64(len(big)) || !maps.Equal(es[0].GetMetadata(), meta) {
		t.Errorf("%v, %v", es, err)
	}
	for _, tt := range []struct {
		part file.Range
		want string
	}{
		{file.Range{Length: -1}, big},
		{file.Range{Offset: 3, Length: 4}, "3456"},
		{file.Range{Offset: int64(len(big)) - 1, Length: -1}, "f"},
		{file.Range{Offset: int64(len(big)), Length: -1}, ""},
	} {
		if got, err := r.read(t, "new/dir/f", tt.part); got != tt.want || err != nil {
			t.Errorf("%+v: %d bytes, %v", tt.part, len(got), err)
		}
	}
	if _, err := r.read(t, "new/dir/f", file.Range{Length: int64(len(big)) + 1}); !kind.Is(err, kind.Unavailable) {
		t.Errorf("beyond the end: %v", err)
	}
	if err := r.write(t, file.Request{Path: "new/dir/f"}, "", true); err != nil {
		t.Fatal(err)
	}
	es, err = r.ask(t, file.Request{Op: file.OpStat, Path: "new/dir/f"})
	if err != nil || es[0].GetSize() != 0 || len(es[0].GetMetadata()) != 0 {
		t.Errorf("replaced as a whole: %v, %v", es, err)
	}
}

// A write keeps the file's mode and follows links; an interrupted one leaves no
// partial file.
func TestWritesAreAtomic(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "old")
	os.Chmod(r.at("home/u/f"), 0o600)
	r.link(t, "f", "home/u/l")
	r.link(t, "later", "home/u/dangling")
	if err := r.write(t, file.Request{Path: "l"}, "new", true); err != nil {
		t.Fatal(err)
	}
	if err := r.write(t, file.Request{Path: "dangling"}, "there now", true); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{"f": "new", "later": "there now"} {
		if got, err := os.ReadFile(r.at("home/u/" + p)); string(got) != want {
			t.Errorf("%s is %q, %v", p, got, err)
		}
	}
	if fi, err := os.Lstat(r.at("home/u/l")); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if fi, err := os.Stat(r.at("home/u/f")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error("the mode changed:", fi.Mode())
	}
	names, _ := os.ReadDir(r.at("home/u"))
	for _, n := range names {
		if Hidden(n.Name()) {
			t.Error("remaining:", n.Name())
		}
	}
}

func TestInterruptedWriteKeepsTheOldFile(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "old")
	req := file.Request{Op: file.OpWrite, Path: "f"}
	c := &cutStream{Reader: strings.NewReader(string(file.AppendFrame(nil, req.Append(nil))) + "half of the ne")}
	r.Serve(c)
	if !errors.Is(c.err, errCut) {
		t.Errorf("got %v", c.err)
	}
	names, err := os.ReadDir(r.at("home/u"))
	got, _ := os.ReadFile(r.at("home/u/f"))
	if string(got) != "old" || len(names) != 1 || err != nil {
		t.Errorf("%q, %v, %v", got, names, err)
	}
}

// Links are resolved as if the root were the machine's.
func TestLinksStayInTheRoot(t *testing.T) {
	r := newRig(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.link(t, "/", "home/u/root")
	r.link(t, outside, "home/u/out")
	r.link(t, strings.Repeat("../", 40)+outside, "home/u/up")
	r.link(t, secret, "home/u/file")
	r.link(t, "/proc/self/fd", "home/u/fds")
	for _, p := range []string{"out", "up", "root" + outside, strings.Repeat("../", 40) + outside} {
		if w, err := r.Watch(&file.Watch{Path: p}); err == nil {
			w.Stop()
			t.Errorf("watch of %s succeeds", p)
		}
	}
	for _, p := range []string{"out/secret", "up/secret", "file", "root" + secret, strings.Repeat("../", 40) + secret, "fds/0"} {
		if got, err := r.read(t, p, file.Range{Length: -1}); err == nil {
			t.Errorf("%s: read %q", p, got)
		}
		r.write(t, file.Request{Path: p}, "ours", true) // in the root, or not at all
		r.ask(t, file.Request{Op: file.OpRemove, Path: p})
		r.ask(t, file.Request{Op: file.OpMakeDir, Path: p + "/d"})
	}
	if got, err := os.ReadFile(secret); string(got) != "theirs" || err != nil {
		t.Fatalf("outside file: %q, %v", got, err)
	}
	if names, err := os.ReadDir(outside); len(names) != 1 || err != nil {
		t.Errorf("%v, %v", names, err)
	}
}

func FuzzPaths(f *testing.F) {
	for _, p := range []string{"", "~", "~/", "~root", "/", "..", "a/../../b", "//x//", "\x00", ".", "a/", "\xff", "~/../../.."} {
		f.Add(p)
	}
	r := newRig(f)
	f.Fuzz(func(t *testing.T, p string) {
		got, err := Resolve("/home/u", p)
		if err != nil {
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got || strings.IndexByte(got, 0) >= 0 {
			t.Errorf("%q became %q", p, got)
		}
		if len(p) > file.MaxPath {
			return
		}
		es, err := r.ask(t, file.Request{Op: file.OpStat, Path: p})
		if err == nil && len(es) != 1 {
			t.Errorf("%q: %d entries", p, len(es))
		}
	})
}

func BenchmarkList(b *testing.B) {
	r := newRig(b)
	for i := range 10_000 {
		r.put(b, fmt.Sprintf("tmp/many/file-%05d", i), "")
	}
	for b.Loop() {
		if es, err := r.ask(b, file.Request{Op: file.OpList, Path: "/tmp/many"}); err != nil || len(es) != 10_000 {
			b.Fatal(len(es), err)
		}
	}
}

func TestComposeConcatenatesFiles(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/a", "one ")
	r.put(t, "home/u/dir/b", "two")
	r.put(t, "home/u/all", "old")
	r.link(t, "/home/u", "via")
	for name, req := range map[string]file.Request{
		"nothing":                     {Path: "all"},
		"itself":                      {Path: "all", Sources: []string{"a", "all"}},
		"itself by another name":      {Path: "all", Sources: []string{"a", "/via/all"}},
		"a directory":                 {Path: "all", Sources: []string{"dir"}},
		"a destination that is a dir": {Path: "dir", Sources: []string{"a"}},
	} {
		req.Op = file.OpCompose
		if _, err := r.ask(t, req); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.ask(t, file.Request{Op: file.OpCompose, Path: "all", Sources: []string{"a", "none"}}); !kind.Is(err, kind.NotFound) {
		t.Errorf("a missing source: %v", err)
	}
	if got, err := os.ReadFile(r.at("home/u/all")); string(got) != "old" {
		t.Fatalf("after the failures: %q, %v", got, err)
	}
	es, err := r.ask(t, file.Request{Op: file.OpCompose, Path: "all", Sources: []string{"a", "~/dir/b", "a"}})
	if err != nil || len(es) != 1 || es[0].GetPath() != "/home/u/all" {
		t.Fatalf("%v, %v", es, err)
	}
	if got, err := os.ReadFile(r.at("home/u/all")); string(got) != "one twoone " {
		t.Errorf("%q, %v", got, err)
	}
	for _, p := range []string{"home/u/a", "home/u/dir/b"} {
		if _, err := os.Lstat(r.at(p)); err == nil {
			t.Errorf("%s still exists", p)
		}
	}
	if es, err := r.ask(t, file.Request{Op: file.OpList, Path: "~"}); err != nil || !slices.Equal(paths(es), []string{"/home/u/all", "/home/u/dir"}) {
		t.Errorf("remaining: %v, %v", paths(es), err)
	}
}
