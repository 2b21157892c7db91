package shim

import (
	"golang.org/x/sys/unix"
)

// enterForks moves the calling thread into the cgroup of Config.Forks. If that fails, all
// threads are counted together, as without such a cgroup.
func (s *Shim) enterForks() {
	fd := s.cfg.Forks
	if fd == 0 || !isCgroup(fd) { // in a VM it is any descriptor of the runtime
		return
	}
	unix.Write(fd, []byte("0")) //nolint:errcheck // see above
	unix.Close(fd)              //nolint:errcheck // it is not used again
}

func isCgroup(fd int) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// processLimit is RLIMIT_NPROC of the user. The shim uses the hard limit; its children get
// the soft limit that the shim was started with.
type processLimit struct{ ours, theirs unix.Rlimit }

// reserve raises the shim's soft limit to the hard limit.
func reserve() processLimit {
	var l processLimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l.theirs); err != nil || l.theirs.Cur == l.theirs.Max {
		return processLimit{}
	}
	l.ours = unix.Rlimit{Cur: l.theirs.Max, Max: l.theirs.Max}
	l.raise()
	return l
}

// most returns the highest limit that the user may set; 0: no limit.
func (l *processLimit) most() uint64 { return l.theirs.Cur }

// lower sets the children's limit for the next fork. If the runtime fails to get a thread
// meanwhile, it retries.
func (l *processLimit) lower() { l.set(&l.theirs) }

func (l *processLimit) raise() { l.set(&l.ours) }

func (l *processLimit) set(to *unix.Rlimit) {
	if l.ours.Max > 0 {
		unix.Setrlimit(unix.RLIMIT_NPROC, to) //nolint:errcheck // up to the hard limit it always succeeds
	}
}
