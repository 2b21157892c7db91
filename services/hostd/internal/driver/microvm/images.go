//go:build linux

package microvm

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
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

// users is where machineFiles may be.
func (i *images) users() live.Roots { return live.Roots(filepath.Join(i.dir, usersDir)) }

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

// prune removes the images that nobody needs and that were longest unused, and what was cut off.
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
		if filepath.Ext(path) != imageSuffix {
			if err := removeHalf(path); err != nil {
				return err
			}
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || needed[path] {
			continue
		}
		if last := time.Unix(st.Atim.Unix()); now.Sub(last) > beginning {
			used[path] = last
		}
	}
	idle := slices.Collect(maps.Keys(used))
	slices.SortFunc(idle, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	for _, path := range idle[min(mostImages, len(idle)):] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// needed are the images of all machines that were saved, or can be.
func (i *images) needed() (map[string]bool, error) {
	if err := i.users().Forget(); err != nil {
		return nil, err
	}
	all, err := i.users().Dirs()
	if err != nil {
		return nil, err
	}
	needed := map[string]bool{}
	for _, d := range all {
		for _, dir := range []string{d, filepath.Join(d, workDir)} {
			var s saved
			raw, err := os.ReadFile(filepath.Join(dir, machineFile))
			if err == nil && json.Unmarshal(raw, &s) == nil {
				needed[s.Image] = true
			}
		}
	}
	return needed, nil
}
