// Package masterkey reads the master key of a service from a file or a command, and creates the
// file at the first start. The key seals the keys in the log; see package seal.
package masterkey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/seal"
)

const (
	// systemFile is the default of a service without a home directory.
	systemFile = "/etc/millrace/master.key"

	maxSize        = 64 << 10 // of a file, and of the output of a command
	commandTimeout = 30 * time.Second
)

// Key is where the master key lies. One of its fields is set.
type Key struct {
	File    string
	Command string // shell command that prints the key
}

// DefaultFile returns the default file: in the user's configuration directory, which the
// environment variables determine.
func DefaultFile(getenv func(string) string) string {
	if d := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "millrace", "master.key")
	}
	if d := getenv("HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, ".config", "millrace", "master.key")
	}
	return systemFile
}

// Source returns the source of the key. With mayCreate it creates a missing file for a store
// without sealed data, and calls created afterwards.
func (k Key) Source(mayCreate bool, created func()) seal.Source {
	return func(ctx context.Context, create bool) (*seal.Master, error) {
		if k.Command != "" {
			return run(ctx, k.Command)
		}
		m, err := read(k.File)
		if !errors.Is(err, fs.ErrNotExist) {
			return m, err
		}
		switch {
		case !create:
			return nil, seal.Missing(fmt.Sprintf("the master key %s does not exist, but the store has sealed data: restore the file from its backup, or set --master-key", k.File))
		case !mayCreate:
			return nil, seal.Missing(fmt.Sprintf("the master key %s does not exist: create it, for example with: openssl rand -hex 32, and copy it to each machine with a gateway, a host or a reaper", k.File))
		}
		if err := write(k.File); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create master key: %w", err)
		}
		m, err = read(k.File)
		if err == nil {
			created()
		}
		return m, err
	}
}

func read(path string) (*seal.Master, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read master key: %w", err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("read master key %s: the file has more than %d bytes", path, maxSize)
	}
	m, err := seal.ParseMaster(string(text))
	if err != nil {
		return nil, fmt.Errorf("read master key %s: %w", path, err)
	}
	return m, nil
}

// write creates a file with a new key. It never replaces a file, and a crash leaves no partial
// key.
func write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".master.key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(seal.NewMaster() + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// Add puts a new key before the others in the file, so that it is the current one.
func (k Key) Add() (*seal.Master, error) {
	return k.edit(func(text string) string { return seal.NewMaster() + "\n" + text })
}

// KeepCurrent removes all keys but the current one from the file.
func (k Key) KeepCurrent() (*seal.Master, error) {
	return k.edit(func(text string) string {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				return line + "\n"
			}
		}
		return text
	})
}

// edit replaces the file at once: a crash leaves the old content or the new one. Its mode and its
// owner stay.
func (k Key) edit(change func(text string) string) (*seal.Master, error) {
	path, err := filepath.EvalSymlinks(k.File)
	if err != nil {
		return nil, fmt.Errorf("change master key: %w", err)
	}
	if _, err := read(path); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = replace(path, change(string(text)))
	}
	if err != nil {
		return nil, fmt.Errorf("change master key: %w", err)
	}
	return read(path)
}

func replace(path, text string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".master.key-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(st.Mode().Perm()))
	if owner, ok := st.Sys().(*syscall.Stat_t); ok {
		err = errors.Join(err, f.Chown(int(owner.Uid), int(owner.Gid)))
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// run returns the key that a shell command prints.
func run(ctx context.Context, command string) (*seal.Master, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out, problems limited
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &problems, time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run master key command: %w: %s", err, bytes.TrimSpace(problems.Bytes()))
	}
	m, err := seal.ParseMaster(out.String())
	if err != nil {
		return nil, fmt.Errorf("read output of master key command: %w", err)
	}
	return m, nil
}

// limited keeps the first bytes of an output.
type limited struct{ bytes.Buffer }

func (l *limited) Write(b []byte) (int, error) {
	l.Buffer.Write(b[:min(len(b), max(0, maxSize-l.Len()))])
	return len(b), nil
}

// Inside reports whether the file lies in a directory, also by links.
func (k Key) Inside(dir string) bool {
	if k.File == "" {
		return false
	}
	rel, err := filepath.Rel(resolve(dir), resolve(k.File))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// resolve follows the links in a path whose end need not exist.
func resolve(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolve(parent), filepath.Base(path))
	}
	return path
}

// Check returns what is wrong with the key's file, for people; "" if nothing is.
func (k Key) Check() string {
	st, err := os.Stat(k.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return k.File + " does not exist; the first start creates it"
	case err != nil:
		return err.Error()
	case st.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("%s can be read by other users (mode %04o): run chmod 600 %s", k.File, st.Mode().Perm(), k.File)
	}
	if _, err := read(k.File); err != nil {
		return err.Error()
	}
	return ""
}
