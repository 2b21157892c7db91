package main

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// published returns the URL of a release that has one program, and the directory of its files.
func published(t *testing.T) (string, *release) {
	t.Helper()
	r := fake(t)
	r.root = ".."
	dir := r.dir(r.platforms[0])
	for from, to := range extras {
		if err := copyFile(filepath.Join(dir, to), filepath.Join(r.root, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyFile(filepath.Join(dir, "share/man/man1/millrace.1"), "doc.go"); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(r.out, r.name(r.platforms[0])+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(out)
	for _, f := range []func() error{
		func() error { return writeTree(w, dir, r.name(r.platforms[0]), r.time) },
		w.Close, out.Close, r.installer,
		func() error { return sums(r.out) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewServer(http.FileServer(http.Dir(r.out)))
	t.Cleanup(s.Close)
	return s.URL, r
}

// install runs the script of a release into a new prefix.
func install(t *testing.T, r *release, env ...string) (prefix, out string, err error) {
	t.Helper()
	prefix = t.TempDir()
	cmd := exec.Command("sh", filepath.Join(r.out, "install.sh"))
	cmd.Env = append(append(os.Environ(), "PREFIX="+prefix), env...)
	b, err := cmd.CombinedOutput()
	return prefix, string(b), err
}

func TestInstall(t *testing.T) {
	url, r := published(t)
	for name, from := range map[string][]string{"from a server": {"MILLRACE_RELEASES=" + url}, "from the script's directory": nil} {
		t.Run(name, func(t *testing.T) {
			prefix, out, err := install(t, r, from...)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got, err := exec.Command(filepath.Join(prefix, "bin/millrace"), "ran").CombinedOutput()
			if err != nil || string(got) != "ran" {
				t.Errorf("the installed program printed %q, %v", got, err)
			}
			if _, err := os.Stat(filepath.Join(prefix, "share/man/man1/millrace.1")); err != nil {
				t.Error(err)
			}
		})
	}
}

// An archive that was changed, one that is not listed, and one that is missing install nothing.
func TestInstallRefusesWrongArchives(t *testing.T) {
	archive := func(r *release) string {
		return filepath.Join(r.out, "millrace-v1.2.3-linux-"+runtime.GOARCH+".tar.gz")
	}
	for name, test := range map[string]struct {
		damage func(r *release) error
		want   string
	}{
		"changed": {func(r *release) error {
			b, err := os.ReadFile(archive(r))
			if err == nil {
				b[len(b)/2] ^= 1
				err = os.WriteFile(archive(r), b, 0o644)
			}
			return err
		}, "does not match its sum"},
		"not listed": {func(r *release) error { return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), nil, 0o644) }, "does not list"},
		"missing":    {func(r *release) error { return os.Remove(archive(r)) }, "cannot get"},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := published(t)
			if err := test.damage(r); err != nil {
				t.Fatal(err)
			}
			prefix, out, err := install(t, r)
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("printed %q, %v; want an error with %q", out, err, test.want)
			}
			if _, err := os.Stat(filepath.Join(prefix, "bin/millrace")); err == nil {
				t.Error("a program was installed")
			}
		})
	}
}
