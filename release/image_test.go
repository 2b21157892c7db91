package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// fake returns a release whose programs are there already: a static program of Go's stands in for
// all of them.
func fake(t *testing.T) *release {
	t.Helper()
	r := &release{out: t.TempDir(), version: "v1.2.3", time: time.Unix(1e9, 0).UTC(), platforms: []string{"linux/" + runtime.GOARCH}, base: "scratch"}
	bin := filepath.Join(r.dir(r.platforms[0]), "bin")
	src := filepath.Join(t.TempDir(), "main.go")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(src, []byte("package main\nimport \"os\"\nfunc main() { os.Stdout.WriteString(os.Args[1] + os.Getenv(\"MILLRACE_DATA\")) }\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(bin, "millrace"), src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

func unpack(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			var b []byte
			b, err = io.ReadAll(in)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, os.FileMode(h.Mode)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unpacked builds the image of a release and returns a directory with its tree, and its configuration.
func unpacked(t *testing.T, r *release) (root string, config v1.Config) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("changing the root requires root")
	}
	if err := r.image(context.Background()); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(r.out, "millrace-v1.2.3-image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir := t.TempDir()
	root = t.TempDir()
	unpack(t, file, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	img, err := ofPlatform(index, v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	tree := mutate.Extract(img)
	defer tree.Close()
	unpack(t, tree, root)
	all, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return root, all.Config
}

// The image runs as a container's runtime runs it: its tree is the root, its entry point the
// program, its environment the process's.
func TestTheImageRuns(t *testing.T) {
	root, config := unpacked(t, fake(t))
	args := append([]string{root, "/usr/local/bin/" + config.Entrypoint[0]}, config.Cmd...)
	cmd := exec.Command("chroot", args...)
	cmd.Env = config.Env
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "up/var/lib/millrace" {
		t.Errorf("the image printed %q, %v", out, err)
	}
}

// Two builds of one tree are equal byte for byte.
func TestTheImageIsReproducible(t *testing.T) {
	r := fake(t)
	var sums []string
	for range 2 {
		if err := r.image(context.Background()); err != nil {
			t.Fatal(err)
		}
		s, err := sumOf(filepath.Join(r.out, "millrace-v1.2.3-image.tar"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, s)
	}
	if sums[0] != sums[1] {
		t.Errorf("sums %v differ", sums)
	}
}

func TestVersionsAndPlatformsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"-version", "../x"}, {"-version", "a b"}, {"-version", "v1", "-platforms", "darwin/arm64"}, {"-version", "v1", "-platforms", ""},
	} {
		if err := run(context.Background(), args); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
