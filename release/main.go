package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// release holds the settings of one run.
type release struct {
	root      string // of the source
	out       string
	version   string
	time      time.Time // of every file
	platforms []string  // such as linux/amd64
	base      string    // of the image: a reference, or an OCI layout's directory
	sbom      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var validVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$`)

func run(ctx context.Context, args []string) error {
	var r release
	var platforms string
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&r.root, "source", "..", "root of the source")
	f.StringVar(&r.out, "out", "../dist/release", "directory that receives the files")
	f.StringVar(&r.version, "version", "", "version (default: git describe)")
	f.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	f.StringVar(&r.base, "base", "debian:bookworm-slim", "base of the image: a reference, the directory of an OCI layout, or none for no image")
	f.BoolVar(&r.sbom, "sbom", true, "write the modules of each program")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := r.complete(ctx, platforms); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.archive(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if r.base != "none" {
		if err := r.image(ctx); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	if err := r.installer(); err != nil {
		return err
	}
	return sums(r.out)
}

// complete makes paths absolute and reads version and time of the commit.
func (r *release) complete(ctx context.Context, platforms string) error {
	var err error
	if r.root, err = filepath.Abs(r.root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	r.platforms = strings.Split(platforms, ",")
	for _, p := range r.platforms {
		if goos, arch, ok := strings.Cut(p, "/"); !ok || goos != "linux" || arch == "" {
			return fmt.Errorf("platform %q: must be linux/<architecture>", p)
		}
	}
	if r.version == "" {
		v, err := r.output(ctx, "git", "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return fmt.Errorf("read the version (or set -version): %w", err)
		}
		r.version = v
	}
	if !validVersion.MatchString(r.version) {
		return fmt.Errorf("version %q: must be letters, digits, dots, plus and minus signs", r.version)
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = r.output(ctx, "git", "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("read the time of the commit (or set SOURCE_DATE_EPOCH): %w", err)
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	r.time = time.Unix(n, 0).UTC()
	return nil
}

// output runs a command in the source and returns the line that it prints.
func (r *release) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	b, err := cmd.Output()
	return strings.TrimSpace(string(b)), err
}

func (r *release) name(p string) string {
	return "millrace-" + r.version + "-" + strings.ReplaceAll(p, "/", "-")
}
