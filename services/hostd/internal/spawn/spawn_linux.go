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

// fork makes a child that goes through the block's steps, and gives its pid or, above
// -4096, an error.
func fork(block uintptr) uintptr

// Spawner starts programs. There is one in a process.
type Spawner struct {
	Processes uint64 // what programs may raise their user's limit of processes to; 0: what this process may

	nofile *unix.Rlimit // what programs get instead of ours; nil: nothing else
	old    bool         // there is no clone3, or it cannot clear handlers; guarded by syscall.ForkLock
	spare  spare
}

// New makes a Spawner. From then on syscall.ForkExec gives what it starts the limit of
// descriptors that this process has.
func New() *Spawner {
	var ours, theirs unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &ours) != nil {
		return &Spawner{}
	}
	// The runtime has raised the limit, and keeps what it was to itself. Exec puts that
	// back, and then there is nothing to execute.
	syscall.Exec("", []string{""}, nil) //nolint:errcheck // there is no such file
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &theirs) != nil || theirs == ours {
		return &Spawner{}
	}
	unix.Prlimit(0, unix.RLIMIT_NOFILE, &ours, nil) //nolint:errcheck // it was so before
	return &Spawner{nofile: &theirs}
}

// Start makes a child that is to become a program, as syscall.ForkExec would, but does
// not wait until it is. Of attr.Sys it knows Setsid, Setctty with Ctty, Credential and
// Pdeathsig; attr.Files are three. Of other descriptors the child closes all, whether they
// are marked for that or not. Wait is to be called.
func (s *Spawner) Start(path string, argv []string, attr *syscall.ProcAttr) (*Child, error) {
	if err := check(path, argv, attr); err != nil {
		return nil, err
	}
	syscall.ForkLock.Lock() // no child has the pipe of another
	defer syscall.ForkLock.Unlock()
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	defer unix.Close(w) //nolint:errcheck // the child has its own
	files, copies, err := lift(attr.Files)
	defer closeAll(copies)
	var k *block
	if err == nil {
		k, err = s.spare.get(room(path, argv, attr))
	}
	if err != nil {
		unix.Close(r) //nolint:errcheck // nothing came
		return nil, err
	}
	s.plan(k, path, argv, attr, files, w)
	pid := int(fork(k.at(0)))
	if !s.old && (pid == -int(unix.ENOSYS) || pid == -int(unix.EINVAL) || pid == -int(unix.EPERM)) {
		s.old = true
		s.plan(k, path, argv, attr, files, w)
		pid = int(fork(k.at(0)))
	}
	if pid < 0 {
		s.spare.put(k)
		unix.Close(r) //nolint:errcheck // nothing came
		return nil, syscall.Errno(-pid)
	}
	return &Child{PID: pid, s: s, done: os.NewFile(uintptr(r), "child"), block: k}, nil
}

// firstFree is the first descriptor that is not one of the program's.
const firstFree = 3

// pipe makes one whose writing end stays where it is in the child.
func pipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, 0, err
	}
	if p[1] >= firstFree {
		return p[0], p[1], nil
	}
	w, err = unix.FcntlInt(uintptr(p[1]), unix.F_DUPFD_CLOEXEC, firstFree)
	unix.Close(p[1]) //nolint:errcheck // there is another
	if err != nil {
		unix.Close(p[0]) //nolint:errcheck // nothing came
	}
	return p[0], w, err
}

// lift gives files that have none of the numbers that the program's will have, by copies
// of those that do.
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
		unix.Close(fd) //nolint:errcheck // they are copies
	}
}

// check refuses what could not be passed on.
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

// plan writes down what the child does. It is still the parent's user for as long as it
// has the parent's descriptors.
func (s *Spawner) plan(k *block, path string, argv []string, attr *syscall.ProcAttr, files []int, pipe int) {
	sys := cmp.Or(attr.Sys, &syscall.SysProcAttr{})
	k.clear()
	if s.old {
		k.step(must, unix.SYS_CLONE, unix.CLONE_VM|uintptr(unix.SIGCHLD), k.at(stackAt)+stackSize)
		planSignals(k)
	} else { // what we handle, the child does not; what we ignore stays ignored
		const flags = unix.CLONE_VM | unix.CLONE_CLEAR_SIGHAND
		k.step(must, unix.SYS_CLONE3, k.words(flags, 0, 0, 0, uint64(unix.SIGCHLD), uint64(k.at(stackAt)), stackSize, 0), cloneArgs)
	}
	if sys.Setsid {
		k.step(must, unix.SYS_SETSID)
	}
	for i, fd := range files {
		k.step(must, unix.SYS_DUP3, uintptr(fd), uintptr(i), 0)
	}
	if pipe > firstFree { // an older kernel closes them when it executes the program
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
		// Before 5.16 a core dump ends all who share the memory, and a new user may have one
		// (fs.suid_dumpable). It counts for the parent, too, which had lost that by the change.
		k.step(may, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	}
	if attr.Dir != "" {
		k.step(must, unix.SYS_CHDIR, k.text(attr.Dir))
	}
	if sys.Pdeathsig != 0 { // a new user has none, so that it comes after
		k.step(must, unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(sys.Pdeathsig))
		k.step(equal, unix.SYS_GETPPID, uintptr(os.Getpid())) // it may be dead already
	}
	k.step(must, unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, k.at(oldMask), 0, wordSize)
	k.step(must, unix.SYS_EXECVE, k.text(path), k.texts(argv), k.texts(attr.Env))
}

// planLimits gives the child the limit of descriptors that we were started with, unless
// somebody gave us another since, and keeps it from raising that of processes.
func (s *Spawner) planLimits(k *block) {
	var now unix.Rlimit
	if n := s.nofile; n != nil && unix.Getrlimit(unix.RLIMIT_NOFILE, &now) == nil && now.Cur == now.Max-1 && now.Max == n.Max {
		k.step(may, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, k.words(n.Cur, n.Max), 0)
	}
	if n := s.Processes; n > 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &now) == nil {
		k.step(may, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NPROC, k.words(min(now.Cur, n), min(now.Max, n)), 0)
	}
}

// planSignals has the child handle no signal as we do, where clone3 does not see to it.
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

// Child is who is to become a program.
type Child struct {
	PID   int
	s     *Spawner
	done  *os.File // ends when the child has become the program, or has ended
	block *block
}

// parts is in how many parts a time limit is waited for: whoever stood still as a whole
// has lost one of them.
const parts = 10

// Wait waits until the child has become the program: then there is no error. It is the
// system's if the child has ended instead, or os.ErrDeadlineExceeded where it is neither
// yet after a limit above 0, and Wait is to be called again. Who was killed meanwhile
// counts as a program. The caller reaps it, whatever it became.
func (c *Child) Wait(limit time.Duration) error {
	err := os.ErrDeadlineExceeded
	for left := parts; left > 0 && errors.Is(err, os.ErrDeadlineExceeded); left-- {
		until := time.Time{}
		if limit > 0 {
			until = time.Now().Add(limit / parts)
		}
		c.done.SetReadDeadline(until) //nolint:errcheck // then it is waited for as long as it takes
		_, err = c.done.Read(make([]byte, 1))
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	c.done.Close() //nolint:errcheck // nothing came
	errno := syscall.Errno(binary.NativeEndian.Uint64(c.block.b[errnoAt:]))
	c.s.spare.put(c.block)
	if errno != 0 {
		return errno
	}
	return nil
}

// Abort kills a child that is not the program yet, of which not a step is run then: the
// error is os.ErrDeadlineExceeded, and Wait is to be called again. Else it is Wait's. The
// child has not been reaped.
func (c *Child) Abort() error {
	syscall.Kill(c.PID, syscall.SIGSTOP) //nolint:errcheck // it may have ended
	if c.through() {
		syscall.Kill(c.PID, syscall.SIGCONT) //nolint:errcheck // it may have ended
		return c.Wait(0)
	}
	syscall.Kill(c.PID, syscall.SIGKILL) //nolint:errcheck // it may have ended
	return os.ErrDeadlineExceeded
}

// through reports whether Wait would not wait.
func (c *Child) through() (is bool) {
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
