package convruntime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/millrace/millrace/events/bootstrap"
)

// directory is where the configuration is, in memory.
type directory string

// sandboxMark is the variable by which the driver without isolation marks processes of a sandbox.
const sandboxMark = "MILLRACE_SANDBOX_ID"

// configDir returns the directory of the configuration. Without isolation the sandbox shares the
// root of the machine, and has a directory of its own in the machine's shared memory.
func configDir() (directory, error) {
	if id := os.Getenv(sandboxMark); id != "" {
		path := bootstrap.SharedDirectory(id)
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("directory of the configuration: %w", err)
		}
		return private(path)
	}
	if !inMemory(bootstrap.Directory) {
		return "", fmt.Errorf("%s is not a file system in memory: the template or a volume has files there, or the driver does not provide one", bootstrap.Directory)
	}
	return private(bootstrap.Directory)
}

// private returns the path of a directory, which must be accessible by its owner only.
func private(path string) (directory, error) {
	info, err := os.Lstat(path)
	if err == nil && (!info.IsDir() || info.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%s has the mode %s: it must be a directory for its owner only", path, info.Mode())
	}
	return directory(path), err
}

// configure writes the values of a role: the configuration, or a part of it.
func (d directory) configure(role bootstrap.Role, values map[string]string) error {
	if role.Of <= 1 {
		return d.write(bootstrap.EnvFile, values)
	}
	if err := d.write(partFile(role.Set, role.Part), values); err != nil || role.Part < role.Of {
		return err
	}
	for part := 1; part < role.Of; part++ {
		others, err := d.read(partFile(role.Set, part))
		if err != nil {
			return fmt.Errorf("part %d of %d of the configuration: %w", part, role.Of, err)
		}
		maps.Copy(values, others)
	}
	if err := d.write(bootstrap.EnvFile, values); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(string(d), partFile("*", 0)+"*"))
	for _, name := range old {
		os.Remove(name) // unless another update did
	}
	return err
}

// partFile returns the name of a part; 0 stands for the beginning of all their names.
func partFile(set string, part int) string {
	name := ".part-" + set + "-"
	if part > 0 {
		name += strconv.Itoa(part)
	}
	return name
}

// write replaces a file atomically.
func (d directory) write(name string, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(d), ".tmp-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(string(d), name))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func (d directory) remove(name string) error {
	err := os.Remove(filepath.Join(string(d), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// read returns the values of a file.
func (d directory) read(name string) (values map[string]string, err error) {
	b, err := os.ReadFile(filepath.Join(string(d), name))
	if err == nil {
		err = json.Unmarshal(b, &values)
	}
	return values, err
}
