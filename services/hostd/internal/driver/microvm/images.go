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

// A running guest has its image open, even if it is removed. A machine that is starting
// needs it for a while, and a saved one as long as it exists: its machineFile names it, and
// the cache records where such files are.
const (
	imagePrefix = "image-"
	imageSuffix = ".squashfs"
	usersDir    = "users"   // links to directories of sandboxes' and of snapshots' directories
	maxImages   = 8         // maximum number of unneeded images; those unused for longest are removed
	startTime   = time.Hour // more than a guest takes to start
)

// users returns the directories that may contain machineFiles.
func (i *images) users() live.Roots { return live.Roots(filepath.Join(i.dir, usersDir)) }

// keepMachine copies the machineFile of a directory to another one.
func keepMachine(from, to string) error {
	m, err := os.ReadFile(filepath.Join(from, machineFile))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, machineFile), m, 0o600)
}

// prune removes the unneeded images that were unused for longest, and incomplete ones.
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
			if err := removePartial(path); err != nil {
				return err
			}
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || needed[path] {
			continue
		}
		if last := time.Unix(st.Atim.Unix()); now.Sub(last) > startTime {
			used[path] = last
		}
	}
	idle := slices.Collect(maps.Keys(used))
	slices.SortFunc(idle, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	for _, path := range idle[min(maxImages, len(idle)):] {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// needed returns the images of all machines that were saved, or can be.
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
