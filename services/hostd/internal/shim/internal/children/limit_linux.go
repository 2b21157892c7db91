package children

import (
	"golang.org/x/sys/unix"
)

// enterForks moves the calling thread into a cgroup if fd is the descriptor of the cgroup's procs
// file. Without the cgroup, or if the move fails, all threads are counted together.
func enterForks(fd int) {
	if fd == 0 || !isCgroup(fd) { // in a VM it is any descriptor of the runtime
		return
	}
	unix.Write(fd, []byte("0")) //nolint:errcheck // see above
	unix.Close(fd)
}

func isCgroup(fd int) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// processLimit is RLIMIT_NPROC of the user. The shim uses the hard limit; its children get
// the soft limit that the shim was started with.
type processLimit struct{ shim, child unix.Rlimit }

// reserveProcesses raises the shim's soft limit to the hard limit.
func reserveProcesses() processLimit {
	var l processLimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l.child); err != nil || l.child.Cur == l.child.Max {
		return processLimit{}
	}
	l.shim = unix.Rlimit{Cur: l.child.Max, Max: l.child.Max}
	l.raise()
	return l
}

// max returns the highest limit that the user may set; 0: no limit.
func (l *processLimit) max() uint64 { return l.child.Cur }

// lower sets the children's limit for the next fork. If the runtime fails to get a thread
// meanwhile, it retries.
func (l *processLimit) lower() { l.set(&l.child) }

func (l *processLimit) raise() { l.set(&l.shim) }

func (l *processLimit) set(to *unix.Rlimit) {
	if l.shim.Max > 0 {
		unix.Setrlimit(unix.RLIMIT_NPROC, to) //nolint:errcheck // up to the hard limit it always succeeds
	}
}
