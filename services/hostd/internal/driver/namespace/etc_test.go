//go:build linux

package namespace

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// Of a fake /etc only the permitted files are copied.
func TestPrepareEtc(t *testing.T) {
	etc, templates := t.TempDir(), t.TempDir()
	for path, mode := range map[string]fs.FileMode{
		"services": 0o644, "os-release": 0o644, "pam.d/login": 0o644, "ssl/certs/ca.pem": 0o644, "alternatives/x": 0o755,
		"shadow": 0o640, "passwd": 0o644, "hosts": 0o644, "ssh/ssh_host_ed25519_key": 0o600, "ssl/private/key.pem": 0o640,
		"ssl/certs/secret.pem": 0o600, "environment": 0o644, "profile.d/tokens.sh": 0o644, "npmrc": 0o644,
		"dpkg/shut/file": 0o644, "R/ldpaths": 0o644, "R/Renviron.site": 0o644,
	} {
		full := filepath.Join(etc, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(etc, "dpkg/shut"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(etc, "alternatives/link")); err != nil {
		t.Fatal(err)
	}
	dir, err := prepareEtc(etc, templates, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got = append(got, strings.TrimPrefix(p, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"R/ldpaths", "alternatives/link", "alternatives/x", "mtab", "os-release", "pam.d/login", "security/limits.conf", "services", "ssl/certs/ca.pem",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if link, err := os.Readlink(filepath.Join(dir, "alternatives/link")); err != nil || link != "/etc/shadow" {
		t.Errorf("link: %q, %v", link, err)
	}

	again, err := prepareEtc(etc, templates, "")
	if err != nil || again != dir {
		t.Errorf("unchanged: %s, %v; want %s", again, err, dir)
	}
	if err := os.WriteFile(filepath.Join(etc, "services"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	changed, err := prepareEtc(etc, templates, "")
	if err != nil || changed == dir {
		t.Errorf("changed: %s, %v; want another path", changed, err)
	}
}

// A copy of /etc remains as long as a daemon or a sandbox uses it, and is removed when
// another one is made after that.
func TestUnusedCopiesOfEtcAreRemoved(t *testing.T) {
	etc, templates, root := t.TempDir(), t.TempDir(), t.TempDir()
	body := ""
	next := func() (string, *os.File) {
		t.Helper()
		body += "x"
		if err := os.WriteFile(filepath.Join(etc, "services"), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
		dir, held, err := lockedEtc(slog.New(slog.DiscardHandler), etc, templates, "")
		if err != nil {
			t.Fatal(err)
		}
		return dir, held
	}
	there := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "services"))
		return err == nil
	}
	first, heldFirst := next()
	second, heldSecond := next()
	if !there(first) || !there(second) {
		t.Fatal("a copy was removed while a daemon used it")
	}
	dir := filepath.Join(root, "i1")
	if err := errors.Join(os.Mkdir(dir, 0o700), roots(templates).Add(root), roots(templates).Add(root)); err != nil {
		t.Fatal(err)
	}
	boot, err := live.BootID()
	if err != nil {
		t.Fatal(err)
	}
	start, err := live.StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	lives := live.State{Driver: name, ID: "i1", PID: os.Getpid(), Start: start, Boot: boot, Etc: first}
	if err := errors.Join(lives.Save(dir), heldFirst.Close(), heldSecond.Close()); err != nil {
		t.Fatal(err)
	}
	third, heldThird := next()
	if !there(first) || there(second) || !there(third) {
		t.Errorf("with a sandbox that uses the first: %v %v %v", there(first), there(second), there(third))
	}
	lives.Start++ // another process has its pid
	if err := errors.Join(lives.Save(dir), heldThird.Close()); err != nil {
		t.Fatal(err)
	}
	_, heldFourth := next()
	if there(first) || there(third) {
		t.Error("unused copies remain")
	}
	if err := errors.Join(os.RemoveAll(root), heldFourth.Close()); err != nil {
		t.Fatal(err)
	}
	next()
	if notes, err := os.ReadDir(filepath.Join(templates, etcRoots)); err != nil || len(notes) > 0 {
		t.Errorf("links to removed directories: %v, %v", notes, err)
	}
}

// A partial copy, left by a daemon that was killed while it removed it, does not prevent
// the removal of the same copy made again since.
func TestPartialCopyOfEtcIsRemoved(t *testing.T) {
	etc, templates := t.TempDir(), t.TempDir()
	hold := func(body string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(etc, "services"), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
		dir, held, err := lockedEtc(slog.New(slog.DiscardHandler), etc, templates, "")
		if err := errors.Join(err, held.Close()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	first := hold("x")
	half := filepath.Join(templates, newPrefix+filepath.Base(first))
	if err := os.MkdirAll(filepath.Join(half, "pam.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	hold("xx")
	for _, dir := range []string{first, half} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s remains: %v", dir, err)
		}
	}
}
