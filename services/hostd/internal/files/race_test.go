//go:build linux

package files

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/file"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// swap replaces a directory by a link and back again, as fast as possible, until it is
// stopped.
func (r *rig) swap(dir string, links ...string) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default: // links[i] may be the directory now: it is moved back
				unix.Renameat2(unix.AT_FDCWD, r.at(dir), unix.AT_FDCWD, r.at(links[i/2%len(links)]), unix.RENAME_EXCHANGE)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// While a directory is replaced by a link that leads out, and back, no request reads,
// reports, changes or makes anything outside.
func TestRacesDoNotLeaveTheRoot(t *testing.T) {
	r := newRig(t)
	const theirs = "theirs-alone"
	outside := t.TempDir()
	for _, name := range []string{"f", theirs} {
		if err := os.WriteFile(filepath.Join(outside, name), []byte(theirs), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	r.put(t, "tmp/dir/f", "ours")
	r.put(t, "tmp/dir/d/f", "ours")
	r.put(t, "tmp/source/f", "ours")
	r.put(t, "tmp/source/sub/f", "ours")
	r.link(t, outside, "tmp/evil")
	r.link(t, strings.Repeat("../", 30)+outside, "tmp/evil2")
	packed := tarOf(t, tar.Header{Name: "f", Mode: 0o600}, tar.Header{Name: "new/x", Mode: 0o600})
	stop := r.swap("tmp/dir", "tmp/evil", "tmp/evil2")
	checkInside := func(es []*pb.EntryInfo, err error) error {
		for _, e := range es {
			if strings.Contains(e.GetName()+e.GetPath(), theirs) || e.GetSize() == int64(len(theirs)) && e.GetName() == "f" {
				t.Errorf("reported %v", e)
			}
		}
		return err
	}
	asks := []func() error{
		func() error {
			got, err := r.read(t, "/tmp/dir/f", file.Range{Length: -1})
			if got == theirs {
				t.Error("read a file outside")
			}
			return err
		},
		func() error { return r.write(t, file.Request{Path: "/tmp/dir/f"}, "ours", true) },
		func() error { return checkInside(r.ask(t, file.Request{Op: file.OpStat, Path: "/tmp/dir/f"})) },
		func() error { return checkInside(r.ask(t, file.Request{Op: file.OpList, Path: "/tmp/dir", Depth: 3})) },
		func() error { return checkInside(r.ask(t, file.Request{Op: file.OpStat, Path: "/tmp/dir/" + theirs})) },
		func() error { return checkInside(r.ask(t, file.Request{Op: file.OpRemove, Path: "/tmp/dir/f"})) },
		func() error { return checkInside(r.ask(t, file.Request{Op: file.OpMakeDir, Path: "/tmp/dir/d"})) },
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpMove, Path: "/tmp/dir/d", To: "/tmp/dir/e"}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpMove, Path: "/tmp/dir/e", To: "/tmp/dir/d"}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpMove, Path: "/tmp/dir/f", To: "/tmp/stolen"}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpChange, Path: "/tmp/dir/f", Mode: 0o666}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpCompose, Path: "/tmp/dir/whole", Sources: []string{"/tmp/dir/f"}}))
		},
		func() error { return r.unpack(t, "/tmp/dir", packed) },
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpCopy, Path: "/tmp/dir", To: "/tmp/copied"}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpCopy, Path: "/tmp/source", To: "/tmp/dir/d"}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpCopy, Path: "/tmp/source/f", To: "/tmp/dir/f"}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpResolve, Path: "/tmp/dir/" + theirs}))
		},
		func() error {
			found, err := r.find(t, file.Request{Path: "/tmp/dir", Depth: 9, MaxDirs: 99, MaxEntries: 99, Follow: true})
			for _, f := range found {
				if strings.Contains(f.Path, theirs) {
					t.Errorf("found %v", f)
				}
			}
			return err
		},
		func() error {
			got, err := r.block(t, "/tmp/dir/f", "")
			if got == theirs {
				t.Error("read a file outside by a handle")
			}
			return err
		},
		func() error {
			_, err := r.block(t, "/tmp/dir/f", "ours")
			return err
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpRemove, Path: "/tmp/dir/f", Single: true, Exists: true}))
		},
		func() error {
			return checkInside(r.ask(t, file.Request{Op: file.OpMakeDir, Path: "/tmp/dir/single", Single: true, Force: true}))
		},
	}
	done, failed := make([]int, len(asks)), make([]int, len(asks))
	for i := range races {
		at := i % len(asks)
		if asks[at]() == nil {
			done[at]++
		} else {
			failed[at]++
		}
	}
	stop()
	t.Logf("done %v, failed %v", done, failed)
	if done[0] == 0 || failed[0] == 0 || done[1] == 0 {
		t.Error("there was no race")
	}
	for _, name := range []string{"f", theirs} {
		text, err := os.ReadFile(filepath.Join(outside, name))
		st, serr := os.Stat(filepath.Join(outside, name))
		if err != nil || serr != nil || string(text) != theirs || st.Mode().Perm() != 0o640 {
			t.Errorf("%s outside is %q, %v, %v, %v", name, text, st, err, serr)
		}
	}
	if names, err := os.ReadDir(outside); len(names) != 2 || err != nil {
		t.Errorf("outside is %v, %v", names, err)
	}
	for _, p := range []string{"/tmp/stolen", "/tmp/copied/f", "/tmp/copied/" + theirs} {
		if got, err := r.read(t, p, file.Range{Length: -1}); err == nil && got == theirs {
			t.Error("got a file from outside:", p)
		}
	}
}
