package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Names and targets must not keep their headers in memory, whose other records can have
// 1 MiB.
func TestTreeKeepsNoHeaders(t *testing.T) {
	const entries, comment = 200, 1 << 19
	layer := Layer{Open: func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			out := tar.NewWriter(w)
			more := strings.Repeat("c", comment)
			long := strings.Repeat("n", 110) // long enough to become a PAX record
			var err error
			for i := 0; err == nil && i < entries; i++ {
				h := tar.Header{
					Name: fmt.Sprintf("d%d%s/%d", i, long, i), Linkname: fmt.Sprintf("%d%s", i, long), Typeflag: tar.TypeSymlink,
					PAXRecords: map[string]string{"comment": more}, Format: tar.FormatPAX,
				}
				err = out.WriteHeader(&h)
			}
			if err == nil {
				err = out.Close()
			}
			w.CloseWithError(err)
		}()
		return r, nil
	}}
	before := heap()
	tree, err := readTree(t.Context(), &Image{Layers: []Layer{layer}}, &Options{MaxSize: 1 << 30, Progress: func(string, int64, int64) {}})
	if err != nil || len(tree.root.kids) != entries {
		t.Fatalf("%v", err)
	}
	if took := int64(heap() - before); took > entries*comment/10 {
		t.Errorf("a tree of %d names holds %d KiB", tree.names, took>>10)
	}
	runtime.KeepAlive(tree)
}

func TestTreeMemoryIsBounded(t *testing.T) {
	deep := strings.Repeat("d/", 200)
	for _, tt := range []struct {
		name    string
		entries []tar.Header
	}{
		{"names", []tar.Header{file("a", ""), file("b", ""), file("c", ""), file("d", "")}},
		{"targets", []tar.Header{link("a", strings.Repeat("t", 1000))}},
		{"bodies", []tar.Header{file("etc/passwd", strings.Repeat("b", 1000))}},
		{"paths", []tar.Header{file(deep+"a", "")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := newTree(1 << 30)
			img := imageOf(t, tt.entries)
			left := int64(1 << 30)
			read := func() error {
				return img.Layers[0].read(t.Context(), &left, func(at int, h *tar.Header, body io.Reader) error {
					return tree.apply(entry{1, at}, h, body)
				})
			}
			if tree.memory = 3 * (perName + 3); tt.name == "paths" {
				tree.memory = 201*(perName+1) + 200
			}
			err := read()
			if err == nil {
				w := &writer{ctx: context.Background(), tar: tar.NewWriter(io.Discard)}
				err = w.tree(tree, img.Layers, &Options{MaxSize: 1 << 30, Progress: func(string, int64, int64) {}})
			}
			if !kind.Is(err, kind.Invalid) || !strings.Contains(kind.Message(err), "memory") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Trees that a host cannot create are rejected at the import.
func TestTreesBeyondHostLimitsAreRejected(t *testing.T) {
	for what, tt := range map[string]struct {
		entry tar.Header
		ok    bool
	}{
		"a file at the maximum":  {file(strings.Repeat("d/", template.MaxDepth)+"x", ""), true},
		"a file too deep":        {file(strings.Repeat("d/", template.MaxDepth+1)+"x", ""), false},
		"a directory at the max": {file(strings.Repeat("d/", template.MaxDepth+1), ""), true},
		"a directory too deep":   {file(strings.Repeat("d/", template.MaxDepth+2), ""), false},
		"a link at the maximum":  {link("l", strings.Repeat("x/", maxLink/2)+"x"), true},
		"a link too long":        {link("l", strings.Repeat("x/", maxLink/2)+"xx"), false},
	} {
		_, _, err := packed(t, imageOf(t, []tar.Header{tt.entry}), Options{})
		if tt.ok && err != nil || !tt.ok && !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The order of a layer's entries does not matter to its whiteouts.
func TestWhiteoutHidesNothingOfItsLayer(t *testing.T) {
	below := []tar.Header{file("d/", ""), file("d/old", "1"), file("d/e/old", "1"), file("f/old", "1")}
	want := map[string]string{"d/new": "2", "d/e/new": "2"}
	for what, l := range map[string][]tar.Header{
		"first":                     {file(".wh.f", ""), file(".wh.d", ""), file("d/", ""), file("d/new", "2"), file("d/e/new", "2")},
		"last":                      {file("d/", ""), file("d/new", "2"), file("d/e/", ""), file("d/e/new", "2"), file(".wh.d", ""), file(".wh.f", "")},
		"last, without directories": {file("d/new", "2"), file("d/e/new", "2"), file(".wh.d", ""), file(".wh.f", "")},
		"between entries":           {file("d/new", "2"), file(".wh.d", ""), file("d/e/new", "2"), file(".wh.f", "")},
	} {
		got, _, err := packed(t, imageOf(t, below, l), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name := range got {
			if _, ok := want[name]; !ok && (strings.HasPrefix(name, "d/") && !strings.HasSuffix(name, "/") || strings.HasPrefix(name, "f/")) {
				t.Errorf("%s: %s exists", what, name)
			}
		}
		for name, body := range want {
			if got[name] != body {
				t.Errorf("%s: %s is %q", what, name, got[name])
			}
		}
	}
}
