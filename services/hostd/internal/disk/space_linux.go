package disk

import "golang.org/x/sys/unix"

// SpaceOf returns the space of a path's file system; zero where it is unknown.
func SpaceOf(path string) Space {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}
	}
	return Space{st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), st.Ffree, st.Files}
}
