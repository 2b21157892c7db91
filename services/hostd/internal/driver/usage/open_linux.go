package usage

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const batch = 512 // descriptors held at a time

// nameless adds up what files take that have no name any more and that the processes
// have open: they are on the disk until the last descriptor is closed. Files in memory
// count only where dir is in memory, too. It ends with the error of each, which sees all
// descriptors first.
func nameless(dir string, processes []int, each func() error) (uint64, error) {
	var home unix.Stat_t
	if err := unix.Stat(dir, &home); err != nil {
		return 0, nil //nolint:nilerr // there is nothing yet, or any more
	}
	n := counter{home: home.Dev, seen: map[[2]uint64]struct{}{}, each: each}
	for _, pid := range processes {
		if err := n.process(pid); err != nil {
			return n.sum, err
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

// process adds what a process has open; one that has ended has nothing.
func (n *counter) process(pid int) error {
	fds, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil //nolint:nilerr // as it says
	}
	defer fds.Close()
	for {
		names, err := fds.Readdirnames(batch)
		for _, name := range names {
			if err := n.each(); err != nil {
				return err
			}
			n.descriptor(fds, name)
		}
		if err != nil || len(names) == 0 {
			return nil
		}
	}
}

func (n *counter) descriptor(fds *os.File, name string) {
	var st unix.Stat_t
	if unix.Fstatat(int(fds.Fd()), name, &st, 0) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	id := [2]uint64{st.Dev, st.Ino}
	if _, ok := n.seen[id]; ok || st.Dev != n.home && inMemory(fds.Name()+"/"+name) {
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
