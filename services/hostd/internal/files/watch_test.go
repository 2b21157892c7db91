//go:build linux

package files

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// watching runs a watch and returns a function that reads its events up to a given one.
func watching(t *testing.T, r *rig, req file.Watch) func(until string) []string {
	t.Helper()
	w, err := r.Watch(&req)
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		w.Run(in)
		in.Close()
	})
	t.Cleanup(func() {
		w.Stop()
		out.Close()
		wg.Wait()
	})
	var rest []byte
	return func(until string) []string {
		t.Helper()
		var got []string
		for {
			v, n := protowire.ConsumeBytes(rest)
			if n < 0 {
				buf := make([]byte, 64<<10)
				n, err := out.Read(buf)
				if err != nil {
					t.Fatalf("after %v: %v", got, err)
				}
				rest = append(rest, buf[:n]...)
				continue
			}
			rest = rest[n:]
			e := &pb.FilesystemEvent{}
			if err := proto.Unmarshal(v, e); err != nil {
				t.Fatal(err)
			}
			s := strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")) + " " + e.GetName()
			if e.GetOverflow() {
				s = "overflow"
			}
			if e.Entry != nil {
				s += " " + e.GetEntry().GetPath()
			}
			if got = append(got, s); s == until {
				return got
			}
		}
	}
}

func TestWatchReportsEventsInOrder(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/w/old", "x")
	next := watching(t, r, file.Watch{Path: "w"})
	dir := r.at("home/u/w")
	os.WriteFile(filepath.Join(dir, "f"), []byte("1"), 0o644)
	os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, "g"))
	os.Chmod(filepath.Join(dir, "g"), 0o600)
	os.Remove(filepath.Join(dir, "g"))
	want := []string{"create f", "write f", "rename f", "create g", "chmod g", "remove g"}
	if got := next("remove g"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// An upload looks like a write, although it is a rename.
	r.write(t, file.Request{Path: "w/new"}, "content", true)
	r.write(t, file.Request{Path: "w/old"}, "content", true)
	if got := next("write old"); !slices.Equal(got, []string{"create new", "chmod new", "write new", "chmod old", "write old"}) {
		t.Errorf("uploads: %q", got)
	}
	os.MkdirAll(filepath.Join(dir, "sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "sub", "unseen"), nil, 0o644)
	os.RemoveAll(dir)
	got := next("remove .")
	if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "unseen") }) {
		t.Errorf("not recursive: %q", got)
	}
}

func TestRecursiveWatchIncludesNewDirectories(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/w/a/f", "x")
	next := watching(t, r, file.Watch{Path: "~/w", Recursive: true, Entries: true})
	dir := r.at("home/u/w")
	os.MkdirAll(filepath.Join(dir, "b/c/d"), 0o755)
	os.WriteFile(filepath.Join(dir, "b/c/d/deep"), []byte("x"), 0o644)
	got := next("create b/c/d/deep /home/u/w/b/c/d/deep") // it may have been written before it was watched
	for _, want := range []string{"create b", "create b/c", "create b/c/d", "create b/c/d/deep"} {
		n := 0
		for _, s := range got {
			if s == want+" /home/u/w/"+strings.TrimPrefix(want, "create ") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q was reported %d times: %q", want, n, got)
		}
	}
	os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "moved"))
	os.WriteFile(filepath.Join(dir, "moved/c/late"), []byte("x"), 0o644)
	next("create moved/c/late /home/u/w/moved/c/late") // as above
}

// An overflow of the kernel's queue is reported in sequence.
func TestWatchReportsOverflow(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/w/f", "x")
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip(err)
	}
	var limit int
	fmt.Sscan(string(raw), &limit)
	if limit == 0 || limit > 1<<17 {
		t.Skip("the queue is long")
	}
	w, err := r.Watch(&file.Watch{Path: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range limit + 10 { // two files in turn: equal events in a row are merged
		name := filepath.Join(r.at("home/u/w"), fmt.Sprint(i%2))
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		unix.Write(fd, []byte("x"))
		unix.Close(fd)
	}
	var all strings.Builder
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Run(writerFunc(func(p []byte) (int, error) {
			for b := p; len(b) > 0; {
				v, n := protowire.ConsumeBytes(b)
				e := &pb.FilesystemEvent{}
				proto.Unmarshal(v, e)
				if e.GetOverflow() {
					all.WriteString("overflow")
					w.Stop()
				}
				b = b[n:]
			}
			return len(p), nil
		}))
	}()
	<-stopped
	if all.String() != "overflow" {
		t.Errorf("got %q", all.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWatchErrors(t *testing.T) {
	r := newRig(t)
	r.put(t, "home/u/f", "x")
	for _, tt := range []struct {
		req  file.Watch
		want kind.Kind
	}{
		{file.Watch{Path: "none"}, kind.NotFound},
		{file.Watch{Path: "f"}, kind.Invalid},
		{file.Watch{Path: "~other"}, kind.Invalid},
		{file.Watch{Path: "/", User: "nobody"}, kind.Unauthenticated},
	} {
		if w, err := r.Watch(&tt.req); !kind.Is(err, tt.want) {
			t.Errorf("%+v: %v, %v", tt.req, w, err)
		}
	}
}

// A watch leaves out directories below it without permission; for its own directory it
// returns an error.
func TestUnreadableDirectoriesAreNotWatched(t *testing.T) {
	r := newRig(t)
	if err := os.MkdirAll(r.at("home/u/shut/in"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.at("home/u/shut"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // gives only this thread another user, without root's privileges
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unix.Setfsuid(65534)
		defer unix.Setfsuid(0)
	}
	w, err := r.Watch(&file.Watch{Path: "/home", Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if len(w.dirs) != 2 {
		t.Errorf("watched: %v, want /home and /home/u", w.dirs)
	}
	if w, err := r.Watch(&file.Watch{Path: "shut"}); !kind.Is(err, kind.Denied) {
		t.Errorf("the unreadable directory itself: %v, %v", w, err)
	}
}
