//go:build linux

package namespace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A fake /etc: what a sandbox may see of it, and what not.
func TestPrepareEtc(t *testing.T) {
	etc, templates := t.TempDir(), t.TempDir()
	for path, mode := range map[string]fs.FileMode{
		"services": 0o644, "os-release": 0o644, "pam.d/login": 0o644, "ssl/certs/ca.pem": 0o644, "alternatives/x": 0o755,
		"shadow": 0o640, "passwd": 0o644, "hosts": 0o644, "ssh/ssh_host_ed25519_key": 0o600, "ssl/private/key.pem": 0o640,
		"ssl/certs/secret.pem": 0o600, "environment": 0o644, "profile.d/tokens.sh": 0o644, "npmrc": 0o644,
		"dpkg/shut/file": 0o644,
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
	dir, err := prepareEtc(etc, templates)
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
	want := []string{"alternatives/link", "alternatives/x", "os-release", "pam.d/login", "services", "ssl/certs/ca.pem"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if link, err := os.Readlink(filepath.Join(dir, "alternatives/link")); err != nil || link != "/etc/shadow" {
		t.Errorf("a link must stay one: %q, %v", link, err)
	}

	again, err := prepareEtc(etc, templates)
	if err != nil || again != dir {
		t.Errorf("unchanged: %s, %v; want %s", again, err, dir)
	}
	if err := os.WriteFile(filepath.Join(etc, "services"), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	changed, err := prepareEtc(etc, templates)
	if err != nil || changed == dir {
		t.Errorf("changed: %s, %v; want another than before", changed, err)
	}
}

func TestRangesDoNotOverlap(t *testing.T) {
	u := uids{used: map[uint32]bool{}}
	seen := map[uint32]bool{}
	for range 500 { // the same id again and again: the worst case
		base, err := u.take("i1")
		if err != nil {
			t.Fatal(err)
		}
		if seen[base] || base%rangeSize != 0 || base < firstBase || base >= lastBase {
			t.Fatalf("base %d", base)
		}
		seen[base] = true
	}
	for base := range seen {
		u.free(base)
	}
	if len(u.used) > 0 {
		t.Errorf("%d left", len(u.used))
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		err        error
	}{
		{"no user namespaces", "user.max_user_namespaces", &os.SyscallError{Syscall: "fork", Err: unix.EPERM}},
		{"too many user namespaces", "user.max_user_namespaces", &os.SyscallError{Syscall: "fork", Err: unix.ENOSPC}},
		{"refused inside", "user.max_user_namespaces", &InitError{Text: "mount /proc: operation not permitted"}},
		{"no overlay", "overlayfs", &InitError{Text: "mount root: no such device"}},
		{"anything else", "strange", errors.New("strange")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := explain(tt.err); !strings.Contains(got.Error(), tt.want) || !errors.Is(got, tt.err) {
				t.Errorf("got %v", got)
			}
		})
	}
}
