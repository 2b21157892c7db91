//go:build linux

package gvisor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

// anotherBuild makes a copy of a program whose build information names another version of
// gVisor.
func anotherBuild(t *testing.T, from, to string) {
	t.Helper()
	program, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	build, err := buildOf(from)
	if err != nil {
		t.Fatal(err)
	}
	words := bytes.Fields(build)
	version := words[len(words)-1]
	program = bytes.ReplaceAll(program, version, bytes.Repeat([]byte("0"), len(version)))
	if err := os.WriteFile(to, program, 0o755); err != nil {
		t.Fatal(err)
	}
}

// begin makes a sandbox that ends with the test.
func begin(t *testing.T, d *Driver, from string) (driver.Spec, driver.Instance, error) {
	t.Helper()
	s := driver.Spec{ID: sandbox.NewID(), Dir: t.TempDir(), From: from}
	drivertest.Shim(&s)
	in, err := d.Create(t.Context(), s)
	if err == nil {
		t.Cleanup(func() {
			if err := in.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	return s, in, err
}

func expect(t *testing.T, in driver.Instance, script, want string) {
	t.Helper()
	if got, err := drivertest.Sh(t.Context(), in, script); got != want || err != nil {
		t.Errorf("%s: %q, %v; want %q", script, got, err, want)
	}
}

func kept(t *testing.T, in driver.Instance, memory bool) string {
	t.Helper()
	dir := t.TempDir()
	if err := in.Snapshot(t.Context(), dir, memory); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The program is replaced while a sandbox of the old build runs and snapshots of it exist.
// The sandbox continues. Any build can use its files; its memory requires the build that
// the sandbox runs, whenever it was saved.
func TestAnotherBuild(t *testing.T) {
	cfg := testConfig(t)
	built, err := cfg.Runsc()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "millrace-runsc")
	if err := link(built, path); err != nil {
		t.Fatal(err)
	}
	before, after := New(cfg), New(Config{Templates: cfg.Templates, Runsc: func() (string, error) { return path, nil }})
	was, err := after.Probe(t.Context())
	if err != nil {
		t.Skip(err)
	}
	s, in, err := begin(t, after, "")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, in, "echo first > $HOME/file; cat $HOME/file", "first\n")
	files, memory := kept(t, in, false), kept(t, in, true)

	anotherBuild(t, built, path+".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	now, err := after.Probe(t.Context())
	if err != nil || now.Fits == was.Fits || now.FileFits != was.FileFits {
		t.Fatalf("the new build: %+v, %v; the old one: %+v", now, err, was)
	}
	attached, err := after.Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got := attached.(driver.Versioned).Fits(); got != was.Fits {
		t.Errorf("the sandbox's memory fits %q, want that of its build: %q", got, was.Fits)
	}
	expect(t, attached, "cat $HOME/file; echo second > $HOME/file", "first\n")
	for _, of := range []struct{ files, memory, want string }{
		{files, memory, "first\n"},
		{kept(t, attached, false), kept(t, attached, true), "second\n"},
	} {
		_, fork, err := begin(t, after, of.files)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, fork, "cat $HOME/file", of.want)
		if _, _, err := begin(t, after, of.memory); !kind.Is(err, kind.Precondition) {
			t.Errorf("memory of another build: %v, want Precondition", err)
		}
		if _, fork, err = begin(t, before, of.memory); err != nil {
			t.Fatal(err)
		}
		expect(t, fork, "cat $HOME/file", of.want)
	}
}
