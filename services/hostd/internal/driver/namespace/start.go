//go:build linux

package namespace

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

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

func (f *files) add(file *os.File, err error) *os.File {
	if err == nil && file != nil {
		*f = append(*f, file)
	}
	return file
}

func (f *files) close() {
	for _, file := range *f {
		file.Close()
	}
}

// start starts the child of a sandbox in the directory work.
func (d *Driver) start(s driver.Spec, base uint32, work string, group *cgroup.Group, disk *os.File) (*child, error) {
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
	if theirs.add(listener, err); err != nil {
		return fail(err)
	}
	specIn, specOut, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs.add(specIn, nil)
	ours.add(specOut, nil)
	faultIn, faultOut, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	theirs.add(faultOut, nil)
	ours.add(faultIn, nil)

	var inherited []*os.File
	if given, inherited, err = lend(&s, base, null, disk); err != nil {
		return fail(err)
	}
	oom := theirs.add(group.OOM(), nil)
	if oom == nil {
		oom = null
	}
	attr := cloneAttr(base)
	pidfd := -1
	attr.PidFD = &pidfd
	inherited = append([]*os.File{null, null, log, listener, oom, shim, specIn, faultOut}, inherited...)
	var proc *os.Process
	err = live.OnThread(work, func() error {
		return group.Start(attr, func() (err error) {
			// By descriptor: the path may lead through directories that are shut
			// to the sandbox's uid.
			proc, err = os.StartProcess("/proc/self/fd/5", []string{filepath.Base(s.ShimPath), nsinit.Arg}, &os.ProcAttr{
				Env: []string{}, Sys: attr, Files: inherited,
			})
			return err
		})
	})
	if err != nil {
		return fail(err)
	}
	p, err := live.Watch(proc, pidfd)
	if err != nil {
		proc.Kill() //nolint:errcheck // it waits for a spec that never comes
		proc.Wait() //nolint:errcheck // reaped
		return fail(err)
	}
	return &child{proc: p, spec: specOut, fault: faultIn, lent: given}, nil
}

func cloneAttr(base uint32) *syscall.SysProcAttr {
	uid, gid := mappings(base)
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS |
			syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: uid, GidMappings: gid,
		Setsid: true,
	}
	if base != 0 {
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	} else {
		// Who is not uid 0 loses his capabilities when he executes something.
		attr.AmbientCaps = nsinit.Needed()
	}
	return attr
}

// hasSuffix reports whether an error's text ends in that of errno.
func hasSuffix(text string, errno unix.Errno) bool {
	return strings.HasSuffix(text, errno.Error())
}
