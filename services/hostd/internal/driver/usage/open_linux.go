package usage

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const batch = 512 // names held at a time

// nameless adds up what files take that have no name any more and that the processes
// have open, or mapped where the kernel tells us (root): they are on the disk as long.
// Files in memory count only where dir is in memory, too. It ends with the error of each,
// which sees all descriptors and mappings first.
func nameless(dir string, processes []int, each func() error) (uint64, error) {
	var home unix.Stat_t
	if err := unix.Stat(dir, &home); err != nil {
		return 0, nil //nolint:nilerr // there is nothing yet, or any more
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

// links adds what a process's links in dir lead to; of one that has ended nothing.
func (n *counter) links(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // as it says
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

// inMemory reports whether a file, also one that is gone meanwhile, takes nothing of a disk.
func inMemory(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return true
	}
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC
}
