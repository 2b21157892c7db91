//go:build linux

package namespace

import (
	"os"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/nslaunch"
)

// child is a sandbox's first process, in its namespaces and waiting for its spec.
type child struct {
	*nslaunch.Child
	mounts inheritedMounts // mounts that it inherits: the template's tree, the snapshot's layers, the volumes
}

func (c *child) close() {
	c.Close()
	c.mounts.close()
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
func (d *Driver) start(s driver.Spec, state live.State, work string, disk *os.File) (c *child, err error) {
	var theirs files
	defer theirs.close()
	var given inheritedMounts
	defer func() {
		if err != nil {
			given.close()
		}
	}()
	shim, err := d.shims.Get(s.ShimPath)
	if err != nil {
		return nil, err
	}
	null, log, err := live.Streams(s.Dir)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, null, log)
	listener, err := live.Listen(s.Dir)
	if err != nil {
		return nil, err
	}
	theirs.add(listener)
	var mounts []*os.File
	if given, mounts, err = openMounts(&s, state.UIDBase, null, disk); err != nil {
		return nil, err
	}
	group := cgroup.Reopen(state.Cgroups)
	counts, err := group.ForShim()
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, counts...)
	started, err := nslaunch.Start(nslaunch.Process{
		Dir: work, Shim: s.ShimPath, Sealed: shim, Base: state.UIDBase, Group: group,
		Null: null, Log: log, First: [3]*os.File{listener, counts[0], counts[1]}, Mounts: mounts,
	})
	if err != nil {
		return nil, err
	}
	return &child{started, given}, nil
}
