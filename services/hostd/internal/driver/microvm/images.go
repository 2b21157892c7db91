//go:build linux

package microvm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A guest that runs has its image open, whoever removes it. Who begins needs it for a
// while, and who was saved as long as he is kept: his machineFile names it, and the
// cache has notes of where such files are.
const (
	imagePrefix = "image-" // images of earlier versions have none: who was saved with those is not known
	imageSuffix = ".squashfs"
	usersDir    = "users"   // links to directories of sandboxes' and of snapshots' directories
	mostImages  = 8         // that nobody needs are kept; those that were longest unused go
	beginning   = time.Hour // more than a guest takes to begin
)

// note notes that the directories in root may hold machineFiles.
func (i *images) note(root string) error {
	sum := sha256.Sum256([]byte(root))
	dir := filepath.Join(i.dir, usersDir)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Symlink(root, filepath.Join(dir, hex.EncodeToString(sum[:8])))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// keepMachine copies the machineFile of a directory to another one, if it has one.
func keepMachine(from, to string) error {
	m, err := os.ReadFile(filepath.Join(from, machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an earlier version's
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, machineFile), m, 0o600)
}

// prune removes the images that nobody needs and that were longest unused.
func (i *images) prune(now time.Time) error {
	needed, err := i.needed()
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(i.dir, imagePrefix+"*"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, path := range found {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || needed[path] {
			continue
		}
		if last := time.Unix(st.Atim.Unix()); now.Sub(last) > beginning {
			used[path] = last
		}
	}
	found = slices.DeleteFunc(found, func(path string) bool { _, idle := used[path]; return !idle })
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	for n, path := range found {
		if n >= mostImages || filepath.Ext(path) != imageSuffix { // what was cut off is of no use
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// needed are the images of all machines that were saved, or can be.
func (i *images) needed() (map[string]bool, error) {
	links, err := os.ReadDir(filepath.Join(i.dir, usersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	needed := map[string]bool{}
	for _, l := range links {
		root := filepath.Join(i.dir, usersDir, l.Name())
		all, err := os.ReadDir(root)
		if errors.Is(err, fs.ErrNotExist) { // the data directory of a host is gone
			err = os.Remove(root)
		}
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			for _, dir := range []string{d.Name(), filepath.Join(d.Name(), workDir)} {
				var s saved
				raw, err := os.ReadFile(filepath.Join(root, dir, machineFile))
				if err == nil && json.Unmarshal(raw, &s) == nil {
					needed[s.Image] = true
				}
			}
		}
	}
	return needed, nil
}
