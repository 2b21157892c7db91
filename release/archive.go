package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// extras are files of the source that an archive has: its path by theirs.
var extras = map[string]string{
	"LICENSE":                               "LICENSE",
	"README.md":                             "README.md",
	"deploy/systemd/millrace-hostd.service": "lib/systemd/system/millrace-hostd.service",
	"deploy/systemd/millrace-up.service":    "lib/systemd/system/millrace-up.service",
	"deploy/systemd/millrace.slice":         "lib/systemd/system/millrace.slice",
	"deploy/sysctl.d/90-millrace.conf":      "lib/sysctl.d/90-millrace.conf",
}

// archive builds a platform's directory in out and its archive.
func (r *release) archive(ctx context.Context, platform string) error {
	dir := r.dir(platform)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := r.build(ctx, platform, dir, programs); err != nil {
		return err
	}
	for from, to := range extras {
		if err := copyFile(filepath.Join(dir, to), filepath.Join(r.root, from)); err != nil {
			return err
		}
	}
	if err := r.manual(ctx, dir); err != nil {
		return err
	}
	if r.sbom {
		if err := r.modules(ctx, platform, dir); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(r.out, r.name(platform)+".tar.gz"))
	if err != nil {
		return err
	}
	defer out.Close()
	w := gzip.NewWriter(out)
	if err := writeTree(w, dir, r.name(platform), r.time); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}

func (r *release) dir(platform string) string {
	return filepath.Join(r.out, strings.ReplaceAll(platform, "/", "-"))
}

// manual lets a program that runs here write manual pages and completions, which are the same
// on every platform.
func (r *release) manual(ctx context.Context, dir string) error {
	local := filepath.Join(r.dir("linux/"+runtime.GOARCH), "bin/millrace")
	man := filepath.Join(dir, "share/man/man1")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, local, "docs", "--man", man)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.time.Unix()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write manual pages (the release needs the platform of this machine, first): %w: %s", err, out)
	}
	for shell, to := range map[string]string{
		"bash": "share/bash-completion/completions/millrace",
		"zsh":  "share/zsh/site-functions/_millrace",
		"fish": "share/fish/vendor_completions.d/millrace.fish",
	} {
		text, err := exec.CommandContext(ctx, local, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion of %s: %w", shell, err)
		}
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeTree writes the files of dir, in the order of their names, below a prefix.
func writeTree(w io.Writer, dir, prefix string, at time.Time) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return writeEntry(t, path, filepath.Join(prefix, rel), d, at)
	})
	if err != nil {
		return err
	}
	return t.Close()
}

func writeEntry(t *tar.Writer, path, name string, d fs.DirEntry, at time.Time) error {
	h := &tar.Header{Name: name, ModTime: at, Format: tar.FormatPAX}
	if d.IsDir() {
		if name == "." {
			return nil
		}
		h.Typeflag, h.Mode, h.Name = tar.TypeDir, 0o755, name+"/"
		return t.WriteHeader(h)
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size, h.Mode = tar.TypeReg, info.Size(), 0o644
	if info.Mode()&0o100 != 0 {
		h.Mode = 0o755
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t, f)
	return err
}

func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// installer writes install.sh with the version of this release.
func (r *release) installer() error {
	b, err := os.ReadFile(filepath.Join(r.root, "release/install.sh"))
	if err != nil {
		return err
	}
	text := strings.Replace(string(b), "@VERSION@", r.version, 1)
	return os.WriteFile(filepath.Join(r.out, "install.sh"), []byte(text), 0o755)
}

// sums writes SHA256SUMS of the files in dir, as sha256sum -c reads it.
func sums(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range files {
		if f.IsDir() || f.Name() == "SHA256SUMS" {
			continue
		}
		sum, err := sumOf(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(text.String()), 0o644)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
