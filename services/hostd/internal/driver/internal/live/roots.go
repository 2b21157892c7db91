package live

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Roots is a directory that records where else something is in use: it has links to the
// directories that hold sandboxes' or snapshots' directories, wherever a host keeps those.
type Roots string

// Add records a directory.
func (r Roots) Add(root string) error {
	sum := sha256.Sum256([]byte(root))
	err := os.MkdirAll(string(r), 0o700)
	if err == nil {
		err = os.Symlink(root, filepath.Join(string(r), hex.EncodeToString(sum[:8])))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Forget removes the links to directories that no longer exist, such as a removed host's.
func (r Roots) Forget() error {
	links, err := filepath.Glob(filepath.Join(string(r), "*"))
	for _, link := range links {
		if _, gone := os.Stat(link); errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// Dirs returns the directories inside those that were recorded.
func (r Roots) Dirs() (dirs []string, err error) {
	links, err := os.ReadDir(string(r))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, l := range links {
		root := filepath.Join(string(r), l.Name())
		all, err := os.ReadDir(root)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			dirs = append(dirs, filepath.Join(root, d.Name()))
		}
	}
	return dirs, nil
}
