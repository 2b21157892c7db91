package network

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	ca     = "-----BEGIN CERTIFICATE-----\nproxy\n-----END CERTIFICATE-----\n"
	others = "-----BEGIN CERTIFICATE-----\nother\n-----END CERTIFICATE-----" // without a newline
)

// rootWith returns a directory with the files and with an empty, world-writable /tmp.
func rootWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tmp := filepath.Join(root, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, filepath.Dir(root)} { // the user of a test may enter it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(tmp, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestCertificateIsAddedToTheSystemsBundleOnce(t *testing.T) {
	for _, path := range bundlePaths {
		t.Run(path, func(t *testing.T) {
			root := rootWith(t, map[string]string{path: others})
			want := caFiles{cert: certPaths[0], bundle: path}
			inRoot(t, root, func() {
				for range 2 {
					if got := installCA([]byte(ca)); got != want {
						t.Errorf("got %+v, want %+v", got, want)
					}
				}
			})
			for name, want := range map[string]string{want.cert: ca, want.bundle: others + "\n" + ca} {
				if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v; want %q", name, got, err, want)
				}
			}
		})
	}
}

// TestCertificateOfAnUnprivilegedShim: what the shim's user may not change stays as it was, and a
// copy of the bundle is made where all may write.
func TestCertificateOfAnUnprivilegedShim(t *testing.T) {
	root := rootWith(t, map[string]string{bundlePaths[0]: others + "\n"})
	const cert = "/tmp/millrace-egress.crt"
	want := caFiles{cert: cert, bundle: cert + ".bundle"}
	inRoot(t, root, func() {
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 { // of this thread
			t.Errorf("become an unprivileged user: %v", errno)
			return
		}
		if got := installCA([]byte(ca)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	for name, want := range map[string]string{want.cert: ca, want.bundle: others + "\n" + ca, bundlePaths[0]: others + "\n"} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestEnvironmentNamesTheCertificate(t *testing.T) {
	env := map[string]string{"A": "b"}
	installCA(nil).setEnv(env)
	if want := map[string]string{"A": "b"}; !maps.Equal(env, want) {
		t.Errorf("without a certificate: %v", env)
	}
	caFiles{cert: "/c", bundle: "/b"}.setEnv(env)
	want := map[string]string{"A": "b", "NODE_EXTRA_CA_CERTS": "/c", "SSL_CERT_FILE": "/b", "REQUESTS_CA_BUNDLE": "/b", "CURL_CA_BUNDLE": "/b", "GIT_SSL_CAINFO": "/b"}
	if !maps.Equal(env, want) {
		t.Errorf("got %v, want %v", env, want)
	}
}

// TestWriteAtomicReplacesTheFileAndNotItsTarget: a process of the sandbox may have put a link or a
// FIFO where the file belongs.
func TestWriteAtomicReplacesTheFileAndNotItsTarget(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"link":     func(path string) error { return os.Symlink(victim, path) },
		"dangling": func(path string) error { return os.Symlink("/nonexistent/file", path) },
		"fifo":     func(path string) error { return unix.Mkfifo(path, 0o666) },
		"hardlink": func(path string) error { return os.Link(victim, path) },
		"nothing":  func(string) error { return nil },
	} {
		path := filepath.Join(dir, "sub", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if err := writeAtomic(path, []byte("new")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode() != 0o644 || fi.Size() != 3 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "text" {
		t.Errorf("the target of a link: %q, %v", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "sub", ".millrace-*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files %v remain, %v", left, err)
	}
}

func TestWriteAtomicLeavesTheRightContentAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, step := range []struct {
		text string
		same bool // the file is the one of the step before
	}{{"one", false}, {"one", true}, {"two", false}, {strings.Repeat("long", 100), false}} {
		before, _ := os.Lstat(path)
		if err := writeAtomic(path, []byte(step.text)); err != nil {
			t.Fatal(err)
		}
		after, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := before != nil && os.SameFile(before, after); got != step.same {
			t.Errorf("%.5q: the same file: %v, want %v", step.text, got, step.same)
		}
	}
}
