//go:build linux

package microvm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Images that were unused for longest are removed, except those that a saved snapshot or
// sandbox needs, or that a starting machine may be using.
func TestPruneKeepsNeededImages(t *testing.T) {
	if _, err := exec.LookPath("mksquashfs"); err != nil {
		t.Skip(err)
	}
	i, data := testImages(t), t.TempDir()
	count := 0
	next := func() string {
		t.Helper()
		count++
		tree := filepath.Join(t.TempDir(), strconv.Itoa(count))
		path, err := "", errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, "f"), []byte(tree), 0o600))
		if err == nil {
			path, err = i.get(t.Context(), tree)
		}
		if err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(count-100) * time.Hour)
		if err := os.Chtimes(path, old, time.Time{}); err != nil {
			t.Fatal(err)
		}
		return path
	}
	saves := func(path, dir string) {
		t.Helper()
		m := machine{image: path}
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), m.save(dir), i.users().Add(filepath.Dir(dir))); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, sandbox, begun, idle := next(), next(), next(), next()
	saves(snapshot, filepath.Join(data, "snapshots", "s1"))
	saves(sandbox, filepath.Join(data, "sandboxes", "i1", workDir))
	if err := i.users().Add(filepath.Join(data, "sandboxes")); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cut := filepath.Join(i.dir, imagePrefix+"cut"+imageSuffix+".tmp")
	if err := errors.Join(os.Chtimes(begun, now, time.Time{}), os.WriteFile(cut, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := createPartial(filepath.Join(i.dir, imagePrefix+"half"+imageSuffix))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	half := f.Name()
	if err := os.Chtimes(half, now.Add(-2*startTime), now); err != nil {
		t.Fatal(err)
	}
	for range maxImages + 1 {
		next()
	}
	for path, want := range map[string]bool{snapshot: true, sandbox: true, begun: true, idle: false, cut: false, half: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it kept: %v", filepath.Base(path), err, want)
		}
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	next()
	for _, path := range []string{snapshot, sandbox} {
		if _, err := os.Stat(path); err == nil {
			t.Error("an image without users remains")
		}
	}
	if notes, err := os.ReadDir(filepath.Join(i.dir, usersDir)); err != nil || len(notes) > 0 {
		t.Errorf("links to removed directories: %v, %v", notes, err)
	}
}
