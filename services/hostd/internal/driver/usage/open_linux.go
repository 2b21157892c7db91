package usage

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const batch = 512 // names read at a time

// deletedFiles adds up the size of deleted files that the processes have open, or mapped where
// the kernel reports that (to root): they occupy the disk as long.
// Files in memory count only if dir is in memory, too. It ends with the error of each,
// which is called for every descriptor and mapping first.
func deletedFiles(dir string, processes []int, each func() error) (uint64, error) {
	var home unix.Stat_t
	if err := unix.Stat(dir, &home); err != nil {
		return 0, nil //nolint:nilerr // nothing exists yet, or any more
	}
	n := counter{home: home.Dev, seen: map[[2]uint64]struct{}{}, each: each}
	for _, pid := range processes {
		for _, list := range []string{"fd", "map_files"} {
			if err := n.links(fmt.Sprintf("/proc/%d/%s", pid, list)); err != nil {
				return n.sum, err
			}
		}
	}
	return n.sum, nil
}

type counter struct {
	home uint64 // device
	seen map[[2]uint64]struct{}
	each func() error
	sum  uint64
}

// links adds the targets of a process's links in dir; none if the process has ended.
func (n *counter) links(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(batch)
		for _, name := range names {
			if err := n.each(); err != nil {
				return err
			}
			n.link(d, name)
		}
		if err != nil || len(names) == 0 {
			return nil
		}
	}
}

func (n *counter) link(dir *os.File, name string) {
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, 0) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	id := [2]uint64{st.Ino, uint64(st.Blocks)} // an overlay's file is on another device when it is mapped
	if _, ok := n.seen[id]; ok || st.Dev != n.home && inMemory(dir.Name()+"/"+name) {
		return
	}
	n.seen[id] = struct{}{}
	n.sum += uint64(st.Blocks) * 512
}

// inMemory reports whether a file, also one deleted meanwhile, is not on a disk.
func inMemory(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return true
	}
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC
}
