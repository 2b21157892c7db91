//go:build linux

package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
)

// Names are bytes and kept as they are; names that are too long for a file system are
// refused.
func TestStrangeNames(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{
		"a\r\nSet-Cookie: b", "\u202egpj.exe", "\x1b[31mred", " ", "-rf", "a\tb", "\u00e9", "e\u0301", "c:\\d", "%2e%2e", strings.Repeat("n", 255), "b\nd",
	} {
		if err := r.write(t, file.Request{Path: "~/" + name}, name, true); err != nil {
			t.Errorf("write %q: %v", name, err)
			continue
		}
		if got, err := r.read(t, "~/"+name, file.Range{Length: -1}); got != name || err != nil {
			t.Errorf("%q has %q, %v", name, got, err)
		}
		if es, err := r.ask(t, file.Request{Op: file.OpStat, Path: "~/" + name}); err != nil || es[0].GetName() != name {
			t.Errorf("stat %q: %v, %v", name, es, err)
		}
	}
	for _, path := range []string{"~/" + strings.Repeat("n", 256), "~/" + strings.Repeat("d/", 2100), "~/" + strings.Repeat("n", 4097), "~/a\x00b"} {
		if err := r.write(t, file.Request{Path: path}, "x", true); !kind.Is(err, kind.Invalid) {
			t.Errorf("%.40q of %d bytes: %v, want invalid", path, len(path), err)
		}
	}
}

// A sandbox can make any number of files in a volume, whose names hostd would hold in memory.
func TestDirectoryWithTooManyNamesIsNotListed(t *testing.T) {
	at := t.TempDir()
	for _, name := range []string{"b", "c", "a"} {
		if err := os.WriteFile(filepath.Join(at, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for most, want := range map[int]kind.Kind{2: kind.Exhausted, 3: 0} {
		dir, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		got, err := (&op{Server: &Server{}, listed: maxNames - most}).names(dir)
		if want != 0 && !kind.Is(err, want) || want == 0 && (err != nil || !slices.Equal(got, []string{"a", "b", "c"})) {
			t.Errorf("at most %d: %q, %v", most, got, err)
		}
	}
}
