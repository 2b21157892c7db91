package builder

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

// tarOf returns a tar: a name that ends with / is a directory, "a->b" a symbolic link, "a=b" a
// hard link to b.
func tarOf(t testing.TB, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := tar.Header{Name: name, Mode: 0o640, Size: 1}
		if from, to, ok := strings.Cut(name, "->"); ok {
			h = tar.Header{Name: from, Linkname: to, Typeflag: tar.TypeSymlink}
		} else if from, to, ok := strings.Cut(name, "="); ok {
			h = tar.Header{Name: from, Linkname: to, Typeflag: tar.TypeLink}
		} else if strings.HasSuffix(name, "/") {
			h.Size, h.Typeflag = 0, tar.TypeDir
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write([]byte("x"))
		}
	}
	w.Close()
	return b.Bytes()
}

func TestCheckContext(t *testing.T) {
	good := tarOf(t, "a/", "a/b", "c->/etc/passwd", "d=a/b")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(good)
	z.Close()
	for name, b := range map[string][]byte{"plain": good, "packed": packed.Bytes(), "empty": tarOf(t)} {
		if err := CheckContext(bytes.NewReader(b)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	device := new(bytes.Buffer)
	w := tar.NewWriter(device)
	w.WriteHeader(&tar.Header{Name: "null", Typeflag: tar.TypeChar})
	w.Close()
	for name, b := range map[string][]byte{
		"absolute": tarOf(t, "/etc/passwd"), "climbs": tarOf(t, "a/../../b"), "climbs at once": tarOf(t, "../b"),
		"a hard link that climbs": tarOf(t, "a=../b"), "a device": device.Bytes(), "no tar": []byte(strings.Repeat("no tar", 500)),
		"half packed": packed.Bytes()[:packed.Len()/2], "half": good[:700],
	} {
		if err := CheckContext(bytes.NewReader(b)); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of the client's reader is not reported as a bad tar.
func TestCheckContextOfABrokenReader(t *testing.T) {
	away := errors.New("away")
	r := io.MultiReader(bytes.NewReader(tarOf(t, "a")), brokenReader{away})
	if err := CheckContext(r); !errors.Is(err, away) {
		t.Error(err)
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

func TestCopies(t *testing.T) {
	tests := []struct {
		source, single string
		names          []string
		want           string
	}{
		{"a", "", []string{"a/", "a/b", "a/c/", "a/c/d", "ab"}, "[. b c c/d]"},
		{".", "", []string{"./", "x", "y/z"}, "[. x y/z]"},
		{"a.txt", "b.txt", []string{"a.txt", "other"}, "[b.txt]"},
		{"d/a.txt", "a.txt", []string{"d/a.txt"}, "[a.txt]"},
		{"*.txt", "", []string{"a.txt", "b.txt", "c.md"}, "[a.txt b.txt c.md]"},
		{"src/*", "", []string{"src/a", "src/d/", "src/d/e"}, "[a . e]"},
		{"src/**/*.go", "", []string{"src/a/b.go", "src/a/c/d.go"}, "[b.go a/c/d.go]"},
		{"s", "", []string{"s/", "s/l->x", "s/h=s/l"}, "[. l->x h=l]"},
	}
	for _, tt := range tests {
		c := copySpec{source: tt.source, single: tt.single}
		from := tar.NewReader(bytes.NewReader(tarOf(t, tt.names...)))
		first, err := from.Next()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := c.rewrite(&b, first, from); err != nil {
			t.Errorf("%s: %v", tt.source, err)
			continue
		}
		var got []string
		for r := tar.NewReader(&b); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			name := h.Name
			switch h.Typeflag {
			case tar.TypeSymlink:
				name += "->" + h.Linkname
			case tar.TypeLink:
				name += "=" + h.Linkname
			}
			got = append(got, name)
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, want %s", tt.source, got, tt.want)
		}
	}
}

func TestModeAppliesToAllFiles(t *testing.T) {
	c := copySpec{source: "a", mode: 0o700}
	from := tar.NewReader(bytes.NewReader(tarOf(t, "a/", "a/b")))
	first, _ := from.Next()
	var b bytes.Buffer
	if err := c.rewrite(&b, first, from); err != nil {
		t.Fatal(err)
	}
	var modes []int64
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		modes = append(modes, h.Mode)
	}
	if !slices.Equal(modes, []int64{0o700, 0o700}) {
		t.Errorf("%o", modes)
	}
}

func FuzzCheckContext(f *testing.F) {
	f.Add(tarOf(f, "a/", "a/b"))
	f.Add(tarOf(f, "../b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if CheckContext(bytes.NewReader(b)) != nil {
			return
		}
		r, err := openTar(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for {
			h, err := r.Next()
			if err != nil {
				return
			}
			if name := "/x/" + h.Name; !strings.HasPrefix(strings.ReplaceAll(name, "/./", "/"), "/x/") || leavesRoot(h.Name) {
				t.Errorf("%q was accepted", h.Name)
			}
		}
	})
}
