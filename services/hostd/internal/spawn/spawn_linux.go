//go:build amd64 || arm64

package spawn

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fork creates a child that runs the block's steps. It returns the pid, or an errno as a
// value above -4096.
func fork(block uintptr) uintptr

// Spawner starts programs. A process has at most one.
type Spawner struct {
	Processes uint64 // maximum process limit that programs may set; 0: that of this process

	nofile   *unix.Rlimit // descriptor limit of programs; nil: the same as this process's
	noClone3 bool         // clone3 is missing, or cannot clear handlers; guarded by syscall.ForkLock
	spare    spare
}

// New returns a Spawner. From then on programs started by syscall.ForkExec get this
// process's current descriptor limit.
func New() *Spawner {
	var ours, theirs unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &ours) != nil {
		return &Spawner{}
	}
	// The runtime has raised the limit and keeps the original value private. Exec restores
	// it, and then fails because the file does not exist.
	syscall.Exec("", []string{""}, nil) //nolint:errcheck // the file does not exist
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &theirs) != nil || theirs == ours {
		return &Spawner{}
	}
	unix.Prlimit(0, unix.RLIMIT_NOFILE, &ours, nil) //nolint:errcheck // this was the value before
	return &Spawner{nofile: &theirs}
}

// Start creates a child that executes a program, as syscall.ForkExec would, but does not
// wait for that. Of attr.Sys it supports Setsid, Setctty with Ctty, Credential and
// Pdeathsig; attr.Files must be three. The child closes all other descriptors, whether or
// not they are close-on-exec. It takes on the restrictions, unless they are nil, or executes
// nothing. The caller must call Wait.
func (s *Spawner) Start(path string, argv []string, attr *syscall.ProcAttr, restrict *Restrictions) (*Child, error) {
	if err := check(path, argv, attr); err != nil {
		return nil, err
	}
	syscall.ForkLock.Lock() // no child inherits the pipe of another
	defer syscall.ForkLock.Unlock()
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer unix.Close(w)
	files, copies, err := lift(attr.Files)
	defer closeAll(copies)
	var k *block
	if err == nil {
		k, err = s.spare.get(maxSize(path, argv, attr, restrict))
	}
	if err != nil {
		unix.Close(r)
		return nil, err
	}
	s.plan(k, path, argv, attr, files, w, restrict)
	pid := int(fork(k.at(0)))
	if !s.noClone3 && (pid == -int(unix.ENOSYS) || pid == -int(unix.EINVAL) || pid == -int(unix.EPERM)) {
		s.noClone3 = true
		s.plan(k, path, argv, attr, files, w, restrict)
		pid = int(fork(k.at(0)))
	}
	if pid < 0 {
		s.spare.put(k)
		unix.Close(r)
		return nil, syscall.Errno(-pid)
	}
	return &Child{PID: pid, s: s, done: os.NewFile(uintptr(r), "child"), block: k}, nil
}

// firstFree is the first descriptor that is not one of the program's.
const firstFree = 3

// pipe makes a pipe whose write end keeps its number in the child.
func pipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, 0, err
	}
	if p[1] >= firstFree {
		return p[0], p[1], nil
	}
	w, err = unix.FcntlInt(uintptr(p[1]), unix.F_DUPFD_CLOEXEC, firstFree)
	unix.Close(p[1])
	if err != nil {
		unix.Close(p[0])
	}
	return p[0], w, err
}

// lift returns files whose numbers do not collide with the program's, by copying those that
// do.
func lift(files []uintptr) (lifted, copies []int, err error) {
	for _, f := range files {
		fd := int(f)
		if fd < firstFree {
			if fd, err = unix.FcntlInt(f, unix.F_DUPFD_CLOEXEC, firstFree); err != nil {
				return nil, copies, err
			}
			copies = append(copies, fd)
		}
		lifted = append(lifted, fd)
	}
	return lifted, copies, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// check rejects what cannot be passed on.
func check(path string, argv []string, attr *syscall.ProcAttr) error {
	for _, list := range [][]string{{path, attr.Dir}, argv, attr.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return syscall.EINVAL
			}
		}
	}
	if attr.Sys != nil {
		rest := *attr.Sys
		rest.Setsid, rest.Setctty, rest.Ctty, rest.Credential, rest.Pdeathsig = false, false, 0, nil, 0
		if !reflect.ValueOf(rest).IsZero() {
			return errors.ErrUnsupported
		}
	}
	if len(attr.Files) != firstFree {
		return errors.ErrUnsupported
	}
	return nil
}

// plan writes the steps of the child. While it has the parent's descriptors, it still runs
// as the parent's user.
func (s *Spawner) plan(k *block, path string, argv []string, attr *syscall.ProcAttr, files []int, pipe int, restrict *Restrictions) {
	sys := cmp.Or(attr.Sys, &syscall.SysProcAttr{})
	k.clear()
	if s.noClone3 {
		k.step(must, unix.SYS_CLONE, unix.CLONE_VM|uintptr(unix.SIGCHLD), k.at(stackAt)+stackSize)
		planSignals(k)
	} else { // handled signals get their default, ignored ones stay ignored
		const flags = unix.CLONE_VM | unix.CLONE_CLEAR_SIGHAND
		k.step(must, unix.SYS_CLONE3, k.words(flags, 0, 0, 0, uint64(unix.SIGCHLD), uint64(k.at(stackAt)), stackSize, 0), cloneArgs)
	}
	if sys.Setsid {
		k.step(must, unix.SYS_SETSID)
	}
	if restrict != nil { // while the child has the ruleset
		k.step(must, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1)
		k.step(must, unix.SYS_LANDLOCK_RESTRICT_SELF, restrict.Ruleset.Fd(), 0)
	}
	for i, fd := range files {
		k.step(must, unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	if pipe > firstFree { // an older kernel closes them at execve
		k.step(may, unix.SYS_CLOSE_RANGE, firstFree, uintptr(pipe)-1, 0)
	}
	k.step(may, unix.SYS_CLOSE_RANGE, uintptr(pipe)+1, math.MaxUint32, 0)
	if sys.Setctty {
		k.step(must, unix.SYS_IOCTL, uintptr(sys.Ctty), unix.TIOCSCTTY, 1)
	}
	s.planLimits(k)
	if cred := sys.Credential; cred != nil {
		if !cred.NoSetGroups {
			k.step(must, unix.SYS_SETGROUPS, uintptr(len(cred.Groups)), k.numbers(cred.Groups))
		}
		k.step(must, unix.SYS_SETGID, uintptr(cred.Gid))
		k.step(must, unix.SYS_SETUID, uintptr(cred.Uid))
		// Before 5.16 a core dump kills all processes that share the memory, and a process
		// that changed its user may dump core (fs.suid_dumpable). The flag also applies to
		// the parent, whose dumpability the change has already cleared.
		k.step(may, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	}
	if attr.Dir != "" {
		k.step(must, unix.SYS_CHDIR, k.text(attr.Dir))
	}
	if sys.Pdeathsig != 0 { // after setuid, which clears it
		k.step(must, unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(sys.Pdeathsig))
		k.step(equal, unix.SYS_GETPPID, uintptr(os.Getpid())) // the parent may have died already
	}
	if restrict != nil && len(restrict.Filter) > 0 {
		k.step(must, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, k.filter(restrict.Filter))
	}
	k.step(must, unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, k.at(oldMask), 0, wordSize)
	k.step(must, unix.SYS_EXECVE, k.text(path), k.texts(argv), k.texts(attr.Env))
}

// planLimits restores the descriptor limit that this process was started with, unless it
// was changed since, and keeps the child from raising the process limit.
func (s *Spawner) planLimits(k *block) {
	var now unix.Rlimit
	if n := s.nofile; n != nil && unix.Getrlimit(unix.RLIMIT_NOFILE, &now) == nil && now.Cur == now.Max-1 && now.Max == n.Max {
		k.step(may, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, k.words(n.Cur, n.Max), 0)
	}
	if n := s.Processes; n > 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &now) == nil {
		k.step(may, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, k.words(min(now.Cur, n), min(now.Max, n)), 0)
	}
}

// planSignals resets the handled signals in the child, if clone3 cannot do it.
func planSignals(k *block) {
	const (
		byDefault, ignored = 0, 1
		last               = 64
	)
	var now struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	for sig := uintptr(1); sig <= last; sig++ {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), wordSize, 0, 0)
		if errno == 0 && now.handler != byDefault && now.handler != ignored {
			k.step(must, unix.SYS_RT_SIGACTION, sig, k.at(defaultAt), 0, wordSize)
		}
	}
}

// Child is a child that executes a program.
type Child struct {
	PID   int
	s     *Spawner
	done  *os.File // at EOF when the child has executed the program, or ended
	block *block
}

// parts is the number of parts in which Wait waits: a pause of this process uses up only
// one of them.
const parts = 10

// Wait waits until the child has executed the program and returns nil, or the system's
// error if the child ended instead. After a limit above 0 it returns
// os.ErrDeadlineExceeded, and must be called again. A child that was killed meanwhile
// counts as executed. The caller reaps the child in every case.
func (c *Child) Wait(limit time.Duration) error {
	err := os.ErrDeadlineExceeded
	for left := parts; left > 0 && errors.Is(err, os.ErrDeadlineExceeded); left-- {
		until := time.Time{}
		if limit > 0 {
			until = time.Now().Add(limit / parts)
		}
		c.done.SetReadDeadline(until)
		_, err = c.done.Read(make([]byte, 1))
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	c.done.Close()
	errno := syscall.Errno(binary.NativeEndian.Uint64(c.block.b[errnoAt:]))
	c.s.spare.put(c.block)
	if errno != 0 {
		return errno
	}
	return nil
}

// Abort kills a child that has not executed the program, which then runs none of it, and
// returns os.ErrDeadlineExceeded; Wait must be called again. Otherwise it returns Wait's
// result. The child must not have been reaped.
func (c *Child) Abort() error {
	syscall.Kill(c.PID, syscall.SIGSTOP)
	if c.hasResult() {
		syscall.Kill(c.PID, syscall.SIGCONT)
		return c.Wait(0)
	}
	syscall.Kill(c.PID, syscall.SIGKILL)
	return os.ErrDeadlineExceeded
}

// hasResult reports whether Wait would return at once.
func (c *Child) hasResult() (is bool) {
	rc, err := c.done.SyscallConn()
	if err != nil {
		return false
	}
	err = rc.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		for err == unix.EINTR {
			n, err = unix.Poll(p, 0)
		}
		is = n > 0
	})
	return is && err == nil
}
