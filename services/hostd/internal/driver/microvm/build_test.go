//go:build linux

package microvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testImages returns images in a temporary directory.
func testImages(t *testing.T) *images {
	t.Helper()
	i := newImages(filepath.Join(t.TempDir(), "cache"))
	t.Cleanup(i.close)
	return i
}

// slowMaker is a mksquashfs that records each file that it makes, and blocks until the
// tree's gate is opened.
const slowMaker = `#!/bin/sh
: > "$2"
echo "$2" >> MADE
if [ -p "$1/gate" ]; then read -r _ < "$1/gate"; fi
`

// slow installs slowMaker as mksquashfs; made returns the files that it was started for.
func slow(t *testing.T) (made func() []string) {
	t.Helper()
	dir := t.TempDir()
	notes := filepath.Join(dir, "made")
	if err := os.WriteFile(filepath.Join(dir, "mksquashfs"), []byte(strings.Replace(slowMaker, "MADE", notes, 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		b, err := os.ReadFile(notes)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))
	}
}

// gated returns a tree with a gate.
func gated(t *testing.T) (tree string) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "tree")
	if err := errors.Join(os.Mkdir(tree, 0o755), unix.Mkfifo(filepath.Join(tree, "gate"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return tree
}

// begun waits until the image of a tree is being made, and returns a function that opens its gate.
func begun(t *testing.T, tree string) (open func()) {
	t.Helper()
	gate, err := os.OpenFile(filepath.Join(tree, "gate"), os.O_WRONLY, 0) // blocks until it is read
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close() })
	return func() {
		if _, err := gate.WriteString("\n"); err != nil {
			t.Fatalf("the maker has ended: %v", err)
		}
	}
}

type given struct {
	path string
	err  error
}

func ask(ctx context.Context, i *images, tree string) <-chan given {
	got := make(chan given, 1)
	go func() {
		path, err := i.get(ctx, tree)
		got <- given{path, err}
	}()
	return got
}

// A tree whose image takes longer than its caller waits has an image in the end.
func TestImageOutlivesItsCaller(t *testing.T) {
	i, made, tree := testImages(t), slow(t), gated(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := ask(ctx, i, tree)
	open := begun(t, tree)
	cancel()
	if a := <-first; !errors.Is(a.err, context.Canceled) {
		t.Errorf("the caller that gave up got %v", a)
	}
	second, third := ask(t.Context(), i, tree), ask(t.Context(), i, tree)
	open()
	for _, got := range []<-chan given{second, third} {
		a := <-got
		if _, err := os.Stat(a.path); a.err != nil || err != nil {
			t.Errorf("the later caller got %v, %v", a, err)
		}
	}
	if all := made(); len(all) != 1 {
		t.Errorf("it was made %d times: %v", len(all), all)
	}
}

// A slow image does not delay others, and is not removed as incomplete.
func TestSlowImageDelaysNoOther(t *testing.T) {
	i, made, tree, other := testImages(t), slow(t), gated(t), t.TempDir()
	slow := ask(t.Context(), i, tree)
	open := begun(t, tree)
	half := made()[0]
	long := time.Now().Add(-2 * startTime)
	if err := os.Chtimes(half, long, long); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-ask(t.Context(), i, other):
		if a.err != nil {
			t.Error(a.err)
		}
	case <-time.After(time.Minute):
		t.Error("another tree's image is not made meanwhile")
	}
	if _, err := os.Stat(half); err != nil {
		t.Error(err)
	}
	open()
	if a := <-slow; a.err != nil {
		t.Error(a.err)
	}
}

// The number of images that are made at once is limited.
func TestImagesWaitForASlot(t *testing.T) {
	i, made := testImages(t), slow(t)
	var got []<-chan given
	var open []func()
	for range maxConcurrent {
		tree := gated(t)
		got, open = append(got, ask(t.Context(), i, tree)), append(open, begun(t, tree))
	}
	waits := ask(t.Context(), i, t.TempDir())
	select {
	case a := <-waits:
		t.Errorf("one caller more got %v", a)
	case <-time.After(100 * time.Millisecond):
	}
	if all := made(); len(all) != maxConcurrent {
		t.Errorf("%d images are made at once", len(all))
	}
	open[0]()
	if a := <-waits; a.err != nil {
		t.Error(a.err)
	}
	for n, f := range open[1:] {
		f()
		if a := <-got[n+1]; a.err != nil {
			t.Error(a.err)
		}
	}
}

func TestCloseEndsWhatIsBeingMade(t *testing.T) {
	i, made, tree := testImages(t), slow(t), gated(t)
	got := ask(t.Context(), i, tree)
	begun(t, tree)
	i.close()
	if a := <-got; !errors.Is(a.err, context.Canceled) {
		t.Errorf("the waiting caller got %v", a)
	}
	if _, err := os.Stat(made()[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("incomplete image: %v", err)
	}
	if _, err := i.get(t.Context(), tree); !errors.Is(err, context.Canceled) {
		t.Errorf("the later caller got %v", err)
	}
}

// The caller has given up, and the tree that it kept is removed.
func TestRemovedTreeHasNoImage(t *testing.T) {
	i, _, tree := testImages(t), slow(t), gated(t)
	got := ask(t.Context(), i, tree)
	open := begun(t, tree)
	if err := os.Rename(tree, tree+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	open()
	if a := <-got; a.err == nil {
		t.Errorf("got %v", a)
	}
	if left, err := filepath.Glob(filepath.Join(i.dir, imagePrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("remaining: %v, %v", left, err)
	}
}
