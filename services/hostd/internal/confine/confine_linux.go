//go:build amd64 || arm64

package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// minABI is the version of landlock that a confinement needs. Older ones do not restrict
// truncate(2).
const minABI = 3

// Check returns why processes cannot be confined on this kernel, or nil.
func Check() error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno != 0:
		return fmt.Errorf("the kernel has no landlock: %w", errno)
	case abi < minABI:
		return fmt.Errorf("the kernel has version %d of landlock, the oldest possible is %d", abi, minABI)
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 {
		return fmt.Errorf("the kernel has no seccomp filters: %w", errno)
	}
	return nil
}

// New returns the restrictions for one child, with the files that exist now. The caller must
// close them. It returns kind.Unimplemented if they cannot be enforced here.
func New(c *process.Confinement) (*spawn.Restrictions, error) {
	if err := Check(); err != nil {
		return nil, kind.Wrap(kind.Unimplemented, "confine", "", fmt.Errorf("the process cannot be confined: %w", err))
	}
	rules, err := newPolicy(c)
	if err != nil {
		return nil, err
	}
	r := &spawn.Restrictions{}
	if !c.Network {
		if r.Filter, err = networkFilter(); err != nil {
			return nil, err
		}
	}
	if r.Ruleset, err = newRuleset(); err != nil {
		return nil, err
	}
	if err := rules.grant(func(path string, access Access) error { return addRule(r.Ruleset, path, access) }); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// RestrictThread restricts the files that the calling thread can use, for good; the network
// stays as it is. The caller's goroutine must be locked to the thread and must end so, and the
// thread must start no process: its restrictions would be the child's. It returns
// kind.Unimplemented if they cannot be enforced here.
func RestrictThread(c *process.Confinement) error {
	r, err := New(c)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up privileges: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, r.Ruleset.Fd(), 0, 0); errno != 0 {
		return fmt.Errorf("restrict a thread: %w", errno)
	}
	return nil
}

// Rights of landlock.
const (
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// fileRights are those that a rule for something else than a directory may have.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// newRuleset returns a ruleset that restricts all of writeRights, without a rule.
func newRuleset() (*os.File, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: writeRights}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return nil, fmt.Errorf("create a landlock ruleset: %w", errno)
	}
	return os.NewFile(fd, "ruleset"), nil
}

// addRule grants access to path, unless it is missing or a symbolic link.
func addRule(ruleset *os.File, path string, access Access) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	rule := unix.LandlockPathBeneathAttr{Parent_fd: int32(fd), Allowed_access: readRights}
	if access == Write {
		rule.Allowed_access = writeRights
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil // its target has a path of its own
	case unix.S_IFDIR:
	default:
		rule.Allowed_access &= fileRights
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("add a landlock rule for %s: %w", path, errno)
	}
	return nil
}
