package shim

import (
	"golang.org/x/sys/unix"
)

// enterForks puts the calling thread into the group of Config.Forks. If that is not
// to be, all are counted together, as where there is no such group.
func (s *Shim) enterForks() {
	fd := s.cfg.Forks
	if fd == 0 || !isCgroup(fd) { // in places with a kernel of their own it is whatever the runtime opened
		return
	}
	unix.Write(fd, []byte("0")) //nolint:errcheck // see above
	unix.Close(fd)              //nolint:errcheck // nobody else has use for it
}

func isCgroup(fd int) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC)
}

// processLimit is that of the user's processes and threads. The shim lives by the hard
// one; what it starts gets the soft one that the shim was given.
type processLimit struct{ ours, theirs unix.Rlimit }

// reserve takes what is above the soft limit for the shim.
func reserve() processLimit {
	var l processLimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l.theirs); err != nil || l.theirs.Cur == l.theirs.Max {
		return processLimit{}
	}
	l.ours = unix.Rlimit{Cur: l.theirs.Max, Max: l.theirs.Max}
	l.raise()
	return l
}

// most is what the user must not raise the limit beyond; 0: there is none.
func (l *processLimit) most() uint64 { return l.theirs.Cur }

// lower puts the limit in force for what is forked next. A thread that the runtime wants
// meanwhile and does not get, it asks for again.
func (l *processLimit) lower() { l.set(&l.theirs) }

func (l *processLimit) raise() { l.set(&l.ours) }

func (l *processLimit) set(to *unix.Rlimit) {
	if l.ours.Max > 0 {
		unix.Setrlimit(unix.RLIMIT_NPROC, to) //nolint:errcheck // not above the hard limit, it is always granted
	}
}
