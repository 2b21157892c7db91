//go:build linux

package drivertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// volume returns a directory of the host for all users of an instance.
func volume(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		os.Chown(dir, 1000, 1000)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testVolumes: what one instance writes into a volume another one reads, with the same
// owner, and it remains when they have ended.
func (s *suite) testVolumes(caps driver.Caps) func(*testing.T) {
	return func(t *testing.T) {
		if !caps.Volumes {
			t.Skip("the driver does not support volumes here")
		}
		one, two := volume(t), volume(t)
		at := t.TempDir() // also where an instance has the host's own files
		with := func(sp *driver.Spec) {
			sp.Volumes = []driver.Volume{{Source: one, Path: at + "/a"}, {Source: two, Path: at + "/a/in"}}
			if os.Geteuid() == 0 { // otherwise an instance may have only the host's own /usr
				sp.Volumes = append(sp.Volumes, driver.Volume{Source: one, Path: "/usr/share/of-millrace/a"})
			}
		}
		t.Run("first", func(t *testing.T) {
			b := s.create(t, with)
			b.sh(t, "echo kept > "+at+"/a/f; mkdir "+at+"/a/d; chmod 700 "+at+"/a/d; echo deep > "+at+"/a/in/g")
			if got := b.sh(t, "cat "+at+"/a/f "+at+"/a/in/g"); got != "kept\ndeep" {
				t.Errorf("inside: %q", got)
			}
			if got := b.sh(t, "cat /usr/share/of-millrace/a/f; ls -d /usr/share/of-millrace/../../bin"); os.Geteuid() == 0 && got != "kept\n/usr/share/of-millrace/../../bin" {
				t.Errorf("below /usr: %q", got)
			}
			if s.own { // elsewhere there may be only one user
				b.shAs(t, 1000, "echo > "+at+"/a/theirs")
				if got := b.sh(t, "stat -c %u "+at+"/a/theirs; rm "+at+"/a/theirs"); got != "1000" {
					t.Errorf("owner of a user's file: %q", got)
				}
			}
			other := s.create(t, with) // at the same time
			if got := other.sh(t, "cat "+at+"/a/f"); got != "kept" {
				t.Errorf("in another instance: %q", got)
			}
		})
		b := s.create(t, with)
		if got := b.sh(t, "cat "+at+"/a/f "+at+"/a/in/g; stat -c %a "+at+"/a/d; [ -O "+at+"/a/f ] && echo mine"); got != "kept\ndeep\n700\nmine" {
			t.Errorf("in a later instance: %q", got)
		}
		if b.sh(t, "rm "+at+"/a/f"); exists(filepath.Join(one, "f")) {
			t.Error("a file removed inside still exists")
		}
		if got, err := os.ReadFile(filepath.Join(two, "g")); string(got) != "deep\n" {
			t.Errorf("on the host: %q, %v", got, err)
		}
		missing, _ := spec(t)
		missing.Volumes = []driver.Volume{{Source: filepath.Join(t.TempDir(), "none"), Path: at + "/x"}}
		if in, err := s.newDriver(t).Create(t.Context(), missing); err == nil {
			in.Destroy(t.Context())
			t.Error("a missing volume is not an error")
		} else if kind.Is(err, kind.Invalid) {
			t.Errorf("%v", err)
		}
		checkClean(t, missing)
		s.volumeOnFile(t, two, at)
	}
}

// volumeOnFile: a volume cannot be mounted on a file, and the error reports that.
func (s *suite) volumeOnFile(t *testing.T, with, at string) {
	one, d := volume(t), s.newDriver(t)
	if err := os.WriteFile(filepath.Join(one, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	onFile, _ := spec(t)
	onFile.Volumes = []driver.Volume{{Source: one, Path: at + "/b"}, {Source: with, Path: at + "/b/file"}}
	in, err := d.Create(t.Context(), onFile)
	if err == nil {
		in.Destroy(t.Context())
		t.Error("a volume on a file is not an error")
	} else if d.Name() == "namespace" && (!kind.Is(err, kind.Precondition) || !strings.Contains(kind.Message(err), "not a directory")) {
		t.Errorf("a volume on a file: %v", err)
	}
	checkClean(t, onFile)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
