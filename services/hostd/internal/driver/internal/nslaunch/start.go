//go:build linux

package nslaunch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
)

// Process describes the process to be started.
type Process struct {
	Dir    string        // working directory; empty: a child of the calling thread, in its directory
	Shim   string        // path of a binary that calls nsinit.Init
	Sealed *os.File      // that binary, from Shims
	Base   uint32        // first of its uids; 0: hostd's own, which is not root
	Group  *cgroup.Group // its cgroup

	Null, Log *os.File
	First     [3]*os.File // descriptors 3 to 5
	Mounts    []*os.File  // those from 9 on; see nsinit
}

// Child is a first process, in its namespaces and waiting for its spec.
type Child struct {
	Proc        *live.Proc
	spec, fault *os.File // hostd's ends of its pipes
}

// Close closes the child's pipes, not its Proc: a child without a spec ends.
func (c *Child) Close() {
	c.spec.Close()
	c.fault.Close()
}

// Start starts p. Its files remain the caller's.
func Start(p Process) (*Child, error) {
	specIn, specOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer specIn.Close()
	faultIn, faultOut, err := os.Pipe()
	if err != nil {
		specOut.Close()
		return nil, err
	}
	c := &Child{spec: specOut, fault: faultIn}
	launcher, err := p.launch(specIn, faultOut)
	faultOut.Close()
	if err == nil {
		// However little time is left: only this process can find the child that it makes.
		launcher.Wait() //nolint:errcheck // its result came through the pipe
		var child *os.Process
		if child, err = launched(faultIn); err == nil {
			err = c.watch(child)
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// launch starts the launcher of a first process. See nsinit.LaunchArgs.
func (p *Process) launch(spec, fault *os.File) (launcher *os.Process, err error) {
	shim, err := filepath.Abs(p.Shim)
	if err != nil {
		return nil, err
	}
	files := slices.Concat([]*os.File{p.Null, p.Null, p.Log}, p.First[:], []*os.File{p.Sealed, spec, fault}, p.Mounts)
	attr := &syscall.SysProcAttr{Setsid: true}
	on := live.OnThread
	if p.Dir == "" {
		on = func(_ string, f func() error) error { return f() }
	}
	err = on(p.Dir, func() error {
		return p.Group.Start(attr, func() (err error) {
			launcher, err = os.StartProcess(shim, nsinit.LaunchArgs(filepath.Base(shim), p.Base, driver.OOMScore), &os.ProcAttr{
				Env: []string{}, Sys: attr, Files: files,
			})
			return err
		})
	})
	return launcher, err
}

const faultMost = 4096 // bytes of a first process's error

// launched returns the child whose pid a launcher reported before it ended; it is this
// process's child. Without a report there may be a child, which has the pipe too: it ends
// when the pipe of its spec does.
func launched(fault *os.File) (*os.Process, error) {
	if err := fault.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return nil, err
	}
	b := make([]byte, faultMost)
	n, err := fault.Read(b)
	if err != nil {
		return nil, fmt.Errorf("sandbox launcher ended early: %w", err)
	}
	if err := fault.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSuffix(string(b[:n]), "\n"))
	if err != nil {
		return nil, &InitError{Text: string(b[:n])}
	}
	return os.FindProcess(pid) // only this process waits for it: until then the pid is not reused
}

// watch monitors the child. One that cannot be monitored, for lack of a descriptor, has
// ended and is reaped, or it would stay a zombie as long as hostd runs.
func (c *Child) watch(child *os.Process) error {
	pidfd, err := unix.PidfdOpen(child.Pid, 0)
	if err = os.NewSyscallError("pidfd_open", err); err == nil {
		c.Proc, err = live.Watch(child, pidfd)
	}
	if err != nil {
		c.Close()
		child.Wait() //nolint:errcheck // only reaps it
	}
	return err
}

// Run sends the recorded child its spec and waits until it has executed the program
// of spec; dir is the directory of its log. If that fails, or ctx ends first, the
// caller must end the child.
func (c *Child) Run(ctx context.Context, dir string, spec *nsinit.Spec) error {
	stop := context.AfterFunc(ctx, func() { c.Proc.Kill() }) //nolint:errcheck // ends the pipes, and with them the calls below
	defer stop()
	_, err := c.spec.Write(spec.Append(nil))
	return c.failed(ctx, dir, err)
}

// failed waits until the child has executed the shim and returns nil, or the reason why it
// did not; err is the error on this side.
func (c *Child) failed(ctx context.Context, dir string, err error) error {
	b, readErr := io.ReadAll(io.LimitReader(c.fault, faultMost))
	text, ready := strings.CutPrefix(string(b), "\x00")
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case text != "":
		return &InitError{Text: text}
	case readErr != nil:
		return readErr
	case ready && err == nil:
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("first process of the sandbox ended early: %w: %q", err, driver.ShimLog(dir))
}

// InitError is an error that a first process reports.
type InitError struct{ Text string }

func (e *InitError) Error() string { return e.Text }

// Is recognizes the causes that the host's operator can fix, by the text
// that came through the pipe.
func (e *InitError) Is(target error) bool {
	switch target {
	case fs.ErrPermission:
		return hasSuffix(e.Text, unix.EPERM) || hasSuffix(e.Text, unix.EACCES)
	case fs.ErrNotExist:
		return hasSuffix(e.Text, unix.ENODEV) || hasSuffix(e.Text, unix.ENOSYS)
	case unix.E2BIG, unix.ENOSPC, unix.EUSERS:
		return strings.HasSuffix(e.Text, target.Error())
	}
	return false
}

// hasSuffix reports whether an error's text ends with that of errno.
func hasSuffix(text string, errno unix.Errno) bool {
	return strings.HasSuffix(text, errno.Error())
}

// Explain adds what a host's operator can do about an error.
func Explain(err error) error {
	var file *fs.PathError
	switch {
	case errors.Is(err, unix.ENOSPC) && errors.As(err, &file):
		return err // the disk is full
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return fmt.Errorf("%w (the kernel does not permit user namespaces: check user.max_user_namespaces, "+
			"kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, or the container that hostd runs in)", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w (requires Linux 5.12 or newer with overlayfs)", err)
	}
	return err
}
