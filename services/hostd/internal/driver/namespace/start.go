//go:build linux

package namespace

import (
	"fmt"
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

// child is a sandbox's first process, in its namespaces and waiting for its spec.
type child struct {
	proc        *live.Proc
	spec, fault *os.File // our ends of its pipes
	lent        lent     // mounts that it has too: the template's tree, the snapshot's layers, the volumes
}

func (c *child) close() {
	c.spec.Close()
	c.fault.Close()
	c.lent.close()
}

// files are closed together.
type files []*os.File

func (f *files) add(file *os.File) { *f = append(*f, file) }

func (f *files) close() {
	for _, file := range *f {
		file.Close()
	}
}

// start starts the child of a sandbox in the directory work.
func (d *Driver) start(s driver.Spec, state live.State, work string, disk *os.File) (*child, error) {
	var theirs, ours files
	defer theirs.close()
	var given lent
	fail := func(err error) (*child, error) { ours.close(); given.close(); return nil, err }

	shim, err := d.shims.get(s.ShimPath)
	if err != nil {
		return fail(err)
	}
	null, log, err := live.Streams(s.Dir)
	if err != nil {
		return fail(err)
	}
	theirs = append(theirs, null, log)
	listener, err := live.Listen(s.Dir)
	if err != nil {
		return fail(err)
	}
	theirs.add(listener)
	specIn, specOut, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs.add(specIn)
	ours.add(specOut)
	faultIn, faultOut, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs.add(faultOut)
	ours.add(faultIn)

	var inherited []*os.File
	if given, inherited, err = lend(&s, state.UIDBase, null, disk); err != nil {
		return fail(err)
	}
	counts, err := cgroup.Reopen(state.Cgroups).ForShim()
	if err != nil {
		return fail(err)
	}
	theirs = append(theirs, counts...)
	launcher, err := d.launch(work, s.ShimPath, &state, slices.Concat([]*os.File{null, null, log, listener}, counts, []*os.File{shim, specIn, faultOut}, inherited))
	if err != nil {
		return fail(err)
	}
	theirs.close()
	// However little time ctx leaves: nobody else knows the child that it makes.
	launcher.Wait() //nolint:errcheck // it has said what there is to say
	p, err := launched(faultIn)
	if err != nil {
		return fail(err)
	}
	return &child{proc: p, spec: specOut, fault: faultIn, lent: given}, nil
}

// launch starts the launcher of a sandbox's first process. See nsinit.LaunchArgs.
func (d *Driver) launch(work, shim string, state *live.State, files []*os.File) (launcher *os.Process, err error) {
	if shim, err = filepath.Abs(shim); err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	err = live.OnThread(work, func() error {
		return cgroup.Reopen(state.Cgroups).Start(attr, func() (err error) {
			launcher, err = os.StartProcess(shim, nsinit.LaunchArgs(filepath.Base(shim), state.UIDBase, driver.OOMScore), &os.ProcAttr{
				Env: []string{}, Sys: attr, Files: files,
			})
			return err
		})
	})
	return launcher, err
}

// launched is the child of which a launcher told before it ended, which is ours. If it
// did not, there may be a child, which has the pipe too: it ends when that of its spec
// does.
func launched(fault *os.File) (*live.Proc, error) {
	if err := fault.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return nil, err
	}
	b := make([]byte, faultMost)
	n, err := fault.Read(b)
	if err != nil {
		return nil, fmt.Errorf("the launcher of a sandbox ended early: %w", err)
	}
	if err := fault.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSuffix(string(b[:n]), "\n"))
	if err != nil {
		return nil, &InitError{Text: string(b[:n])}
	}
	// Nobody else waits for it: until then the pid is its own.
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	proc, err := os.FindProcess(pid)
	if err != nil {
		unix.Close(pidfd)
		return nil, err
	}
	return live.Watch(proc, pidfd)
}

// hasSuffix reports whether an error's text ends in that of errno.
func hasSuffix(text string, errno unix.Errno) bool {
	return strings.HasSuffix(text, errno.Error())
}
