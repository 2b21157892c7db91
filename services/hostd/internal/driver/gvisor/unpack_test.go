//go:build linux

package gvisor

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
)

// unpackList unpacks a list of headers, in which files have the contents "body".
func unpackList(t *testing.T, parts bool, headers ...tar.Header) (dir string, err error) {
	t.Helper()
	return unpackFiles(t, parts, []uint64{4, 0, 4096, 8192}, headers...)
}

// unpackFiles is unpackList of files with that size and those segments. The store has 8196
// bytes.
func unpackFiles(t *testing.T, parts bool, numbers []uint64, headers ...tar.Header) (dir string, err error) {
	t.Helper()
	var list bytes.Buffer
	w := tar.NewWriter(&list)
	for _, h := range append([]tar.Header{{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}}, headers...) {
		var body []byte
		if h.Typeflag == tar.TypeReg {
			for _, n := range numbers {
				body = binary.LittleEndian.AppendUint64(body, n)
			}
		}
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	store, err := os.CreateTemp(t.TempDir(), "store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.WriteAt([]byte("body"), 8192); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	layer, err := layers.Begin(t.Context(), "", to, !parts)
	if err != nil {
		t.Fatal(err)
	}
	return layer.Dir, unpack(t.Context(), layer, &list, store, parts, map[string]bool{"etc/hosts": true})
}

func file(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644} }
func directory(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}
}

// A sandbox may control the program that writes the list: nothing is written outside of the
// layer, for any list.
func TestUnpackStaysInTheLayer(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	link := tar.Header{Name: "./link", Typeflag: tar.TypeSymlink, Linkname: outside}
	for name, headers := range map[string][]tar.Header{
		"up":                       {file("./../../file")},
		"up, from a directory":     {directory("./a/"), file("./a/../../file")},
		"absolute":                 {file("/" + outside + "/file")},
		"a file in a link":         {link, file("./link/file")},
		"a directory in it":        {link, directory("./link/d/")},
		"a link and a directory":   {link, directory("./link/"), file("./link/file")},
		"a name of the host":       {{Name: "./hosts", Typeflag: tar.TypeLink, Linkname: "../../../../../../etc/hosts"}},
		"a name over a link":       {link, file("./x"), {Name: "./y", Typeflag: tar.TypeLink, Linkname: "./link/file"}},
		"no parent before it":      {file("./none/file")},
		"twice":                    {file("./x"), file("./x")},
		"directories out of order": {directory("./a/"), directory("./b/"), file("./a/x")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := unpackList(t, false, headers...); err == nil {
				t.Error("malformed list accepted")
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside of the layer: %v, %v", left, err)
			}
		})
	}
}

// Of the host template, /usr and /etc are parts of their own, and an unchanged initial
// file is not part of the layer.
func TestUnpackParts(t *testing.T) {
	usr := directory("./usr/")
	dir, err := unpackList(t, true, directory("./etc/"), file("./etc/hosts"), file("./etc/own"), usr, file("./usr/x"), directory("./srv/"),
		tar.Header{Name: "./srv/same", Typeflag: tar.TypeLink, Linkname: "./usr/x"}, tar.Header{Name: "./srv/gone", Typeflag: tar.TypeChar})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"etc.upper/own": "body", "usr.upper/x": "body", "upper/srv/same": "body"} {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "etc.upper/hosts")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("initial file: %v", err)
	}
	if fi, err := os.Lstat(filepath.Join(dir, "upper/srv/gone")); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("removed file: %v, %v", fi, err)
	}
	usr.PAXRecords = map[string]string{paxAttribute + "trusted.overlay.opaque": "y"}
	for what, h := range map[string]tar.Header{"made anew": usr, "removed": {Name: "./usr", Typeflag: tar.TypeChar}, "a link": {Name: "./etc", Typeflag: tar.TypeSymlink, Linkname: "usr"}} {
		if _, err := unpackList(t, true, h); !kind.Is(err, kind.Precondition) || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("%s: %v, want a precondition", what, err)
		}
	}
}

// Each byte of the store belongs to one file: a list that copies it again and again would
// fill the host's disk.
func TestUnpackCopiesTheStoreOnce(t *testing.T) {
	const all = 8196
	for _, tt := range []struct {
		name    string
		numbers []uint64
		files   []tar.Header
		ok      bool
	}{
		{"a file", []uint64{all, 0, all, 0}, []tar.Header{file("./a")}, true},
		{"in parts", []uint64{all, 0, 4096, 4096, 4096, all, 0}, []tar.Header{file("./a")}, true},
		{"two files", []uint64{all, 0, all, 0}, []tar.Header{file("./a"), file("./b")}, false},
		{"a file again and again", []uint64{all, 0, all, 0, 0, all, 0}, []tar.Header{file("./a")}, false},
	} {
		if _, err := unpackFiles(t, false, tt.numbers, tt.files...); tt.ok != (err == nil) || err != nil && !errors.Is(err, errList) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// An initial file may have other names, which are the sandbox's own, in any order.
func TestUnpackKeepsOtherNamesOfInitialFiles(t *testing.T) {
	begun := file("./etc/hosts")
	begun.ModTime = time.Unix(seedTime, 0)
	dir, err := unpackList(t, true, directory("./etc/"), begun, directory("./srv/"),
		tar.Header{Name: "./srv/hosts", Typeflag: tar.TypeLink, Linkname: "./etc/hosts"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "upper/srv/hosts")); err != nil || string(got) != "body" {
		t.Errorf("its other name: %q, %v", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*hosts")); err != nil || len(left) > 0 {
		t.Errorf("left beside the parts: %q, %v", left, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "etc.upper/hosts")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("initial file: %v", err)
	}
}

// A path longer than PATH_MAX is refused.
func TestUnpackRefusesALongPath(t *testing.T) {
	var headers []tar.Header
	path := "./"
	for len(path) < maxPath {
		path += strings.Repeat("d", 200) + "/"
		headers = append(headers, directory(path))
	}
	if _, err := unpackList(t, false, headers...); !kind.Is(err, kind.Precondition) {
		t.Errorf("got %v, want a precondition", err)
	}
	if _, err := unpackList(t, false, headers[:len(headers)-1]...); err != nil {
		t.Errorf("one directory less: %v", err)
	}
}

// The memory that unpack uses does not grow with the number of files, and little with the
// depth of directories, with any attributes.
func TestUnpackBoundsItsMemory(t *testing.T) {
	large := map[string]string{paxAttribute + "trusted.of-nobody": strings.Repeat("x", 256<<10)}
	list, ours := io.Pipe()
	layer, err := layers.Begin(t.Context(), "", t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	done := make(chan error, 1)
	go func() { done <- unpack(t.Context(), layer, list, store, false, map[string]bool{"etc/hosts": true}) }()
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before, path := heap(), "./"
	w := tar.NewWriter(ours)
	for i := range 100 {
		h := directory(path)
		h.PAXRecords = large
		link := tar.Header{Name: fmt.Sprintf("%sl%d", path, i), Typeflag: tar.TypeSymlink, Linkname: "x", PAXRecords: large}
		if err := errors.Join(w.WriteHeader(&h), w.WriteHeader(&link)); err != nil {
			t.Fatal(err)
		}
		path += "d/"
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("unpack uses %d MiB", grown>>20)
	}
	if err := errors.Join(w.Close(), ours.Close(), <-done); err != nil {
		t.Error(err)
	}
}

// A sandbox may set modification times in any year.
func TestUnpackTimes(t *testing.T) {
	for _, year := range []int{1905, 2026, 2400} {
		h := file("./x")
		h.ModTime, h.Format = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), tar.FormatPAX
		dir, err := unpackList(t, false, h)
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(filepath.Join(dir, "upper/x")); err != nil || fi.ModTime().UTC().Year() != year {
			t.Errorf("year %d: %v, %v", year, fi.ModTime(), err)
		}
	}
}

// A memory requires the build that saved it.
func TestMemoryRequiresItsBuild(t *testing.T) {
	path, err := testConfig(t).Runsc()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := buildOf(path)
	if err != nil {
		t.Fatal(err)
	}
	for build, want := range map[string]kind.Kind{string(ours): 0, "go1.1 amd64 v0\n": kind.Precondition} {
		from := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(from, memoryDir), 0o700), os.WriteFile(filepath.Join(from, buildFile), []byte(build), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := (&runsc{path: path}).from(&driver.Spec{ID: "x", From: from}); (err != nil) != (want != 0) || want != 0 && !kind.Is(err, want) {
			t.Errorf("build %q: %v, want %v", build, err, want)
		}
	}
}
