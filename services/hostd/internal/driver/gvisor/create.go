//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/layers"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

const (
	workDir       = "gv"             // relative to Spec.Dir
	createTimeout = 60 * time.Second // for a host under load; on an idle one it takes 0.1 s
	pipeSize      = 1 << 20          // of each FIFO, where the host permits it
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	b, err := d.create(ctx, s)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// create records each thing in the state before it makes it, so that Attach finds
// everything that an interrupted create leaves.
func (d *Driver) create(ctx context.Context, s driver.Spec) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	path, err := d.cfg.Runsc()
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	if err := live.CheckVacant(ctx, d, s); err != nil {
		return nil, err
	}
	state := live.State{Driver: name, ID: s.ID, From: below(s.From), Tree: s.Root != ""}
	if state.Boot, err = live.BootID(); err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	limits := cgroup.Limits{MemoryMiB: s.MemoryMiB, CPUMilli: s.CPUMilli, Pids: threads(&s)}
	state.Cgroups = d.groups().Paths(cgroup.Prefix+string(s.ID), limits)
	b, err := d.make(ctx, &s, state, limits, &runsc{path: path, id: s.ID, dir: filepath.Join(s.Dir, workDir)})
	if err != nil {
		return nil, live.Rollback(ctx, d.cfg.Log, s.Dir, state, d.sweep, err)
	}
	return b, nil
}

// threads returns how many threads gVisor may have on the host: its own, and up to four
// for each process.
func threads(s *driver.Spec) uint32 { return 256 + 4*s.MaxPIDs(driver.MaxProcesses) }

// make makes the parts that state names. On error, sweep removes the remaining ones.
func (d *Driver) make(ctx context.Context, s *driver.Spec, state live.State, limits cgroup.Limits, r *runsc) (*instance, error) {
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	if err := r.from(s); err != nil {
		return nil, err
	}
	if err := r.makeDirs(s); err != nil {
		return nil, err
	}
	first, inner, err := d.bundle(s, r, &state)
	if err != nil {
		return nil, err
	}
	group, err := d.groups().Make(state.Cgroups, limits)
	if err != nil {
		return nil, fmt.Errorf("make cgroups: %w", err)
	}
	if err := r.begin(ctx, s, first, group); err != nil {
		return nil, err
	}
	d.checkVeil(s, r)
	if state.PID, err = r.pid(); err != nil {
		return nil, err
	}
	if state.Start, err = live.StartTime(state.PID); errors.Is(err, fs.ErrNotExist) {
		return nil, live.ErrGone
	} else if err != nil {
		return nil, err
	}
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	proc, err := live.Find(state)
	if err != nil {
		return nil, err
	}
	b := d.newInstance(s.Dir, state, proc)
	if inner == "" {
		return b, nil
	}
	if err := b.limitPIDs(ctx, inner, s.MaxPIDs(driver.MaxProcesses)); err != nil {
		b.Destroy(context.WithoutCancel(ctx)) //nolint:errcheck // the caller removes or reports the remaining parts
		return nil, err
	}
	return b, nil
}

// checkVeil records whether a sandbox can read the host's own files as the host's root can.
func (d *Driver) checkVeil(s *driver.Spec, r *runsc) {
	if !veils(s) {
		return
	}
	b, err := os.ReadFile(r.in(veilFile))
	why := string(b)
	if err != nil {
		why = "millrace-runsc does not report it: " + err.Error()
	}
	if why != "" && d.unveiled.Swap(&why) == nil {
		d.cfg.Log.Warn("root in sandboxes of the host template can read files that only the host's root may read", "driver", name, "why", why)
	}
}

// makeDirs creates the workDir with its directories, FIFOs and the shim.
func (r *runsc) makeDirs(s *driver.Spec) error {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	for _, dir := range []string{stateDir, rootDir, diskDir, shimDir} {
		if err := os.Mkdir(r.in(dir), 0o700); err != nil {
			return err
		}
	}
	for _, fifo := range []string{toShim, toHostd, outputPipe} {
		if err := unix.Mkfifo(r.in(fifo), 0o600); err != nil {
			return &os.PathError{Op: "mkfifo", Path: r.in(fifo), Err: err}
		}
	}
	shim := s.ShimPath
	if s.From != "" {
		if kept := filepath.Join(s.From, shimFile); exists(kept) {
			shim = kept // the processes in the snapshot have it mapped
		}
	}
	return link(shim, r.in(shimDir, shimFile))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// link makes to a hard link to from, or a copy of it.
func link(from, to string) error {
	if target, err := filepath.EvalSymlinks(from); err == nil && os.Link(target, to) == nil {
		return nil
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// bundle writes the sandbox's configuration. It returns the first arguments of the
// call that starts it, and the name of its cgroup inside, if it has one. It records in
// state what the sandbox uses of the host.
func (d *Driver) bundle(s *driver.Spec, r *runsc, state *live.State) (first []string, inner string, err error) {
	view, err := d.host.View(*s)
	if err != nil {
		return nil, "", err
	}
	state.Etc = view.Etc
	m, err := layers.Read(state.From)
	if err != nil {
		return nil, "", err
	}
	under := layers.Under(state.From, m)
	root := s.Root
	if root == "" || len(s.Volumes) > 0 || under.Layers() > 0 {
		root = r.in(rootDir)
		arg, err := viewArg(s, &view, root, under)
		if err != nil {
			return nil, "", err
		}
		first = append(first, arg)
	}
	var c config
	if hasMemory(s.From) {
		if c, err = readConfig(filepath.Join(s.From, configFile)); err != nil {
			return nil, "", err
		}
		c.restored(r, s, root)
	} else {
		memory, err := configMounts(s.Root, under)
		if err != nil {
			return nil, "", err
		}
		c = newConfig(r, s, &view, root, memory)
		if err := d.writeSeed(r.in(seedFile), s, view.Files, under); err != nil {
			return nil, "", err
		}
	}
	if c.Linux.Cgroup != "" {
		first = append(first, withGroup)
	}
	return first, c.Linux.Cgroup, c.save(r.in(configFile))
}

// begin starts or restores the sandbox and returns when its shim has been executed, or
// has continued.
func (r *runsc) begin(ctx context.Context, s *driver.Spec, first []string, group *cgroup.Group) error {
	size, err := r.diskSize(s)
	if err != nil {
		return err
	}
	// Relative to the working directory: a path with a comma could not be expressed.
	overlay := fmt.Sprintf("--overlay2=root:dir=/proc/self/cwd/%s,size=%dM", diskDir, size)
	c, err := readConfig(r.in(configFile))
	if err != nil {
		return err
	}
	args := []string{"--log=" + r.in(errorFile), "--log-format=json", overlay, "--allow-rootfs-tar-annotation", "--allow-suid=" + strconv.FormatBool(!c.Process.NoNew), "run"}
	if hasMemory(s.From) {
		// It would compare the annotations, and does not support seedAnnotation.
		args = append(args[:len(args)-1], "--restore-spec-validation=warning", "restore")
		args = append(args, "--image-path="+filepath.Join(s.From, memoryDir))
	}
	args = append(args, "--detach", "--bundle="+r.dir, "--pid-file="+r.in(pidFile), string(r.id))
	cmd := r.command(ctx, first, args...)
	var files [3]*os.File
	for i, fifo := range []string{toShim, toHostd, outputPipe} {
		f, err := os.OpenFile(r.in(fifo), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		files[i] = f
	}
	for _, f := range files[:2] {
		unix.FcntlInt(f.Fd(), unix.F_SETPIPE_SZ, pipeSize) //nolint:errcheck // the default size works, too
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	return r.start(cmd, group)
}

// diskSize returns how many MiB may be written: without a limit the size of the host's
// file system, so that programs inside see a realistic size.
func (r *runsc) diskSize(s *driver.Spec) (uint64, error) {
	if s.DiskMiB > 0 {
		return uint64(s.DiskMiB), nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.dir, &fs); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: r.dir, Err: err}
	}
	return max(fs.Blocks*uint64(fs.Bsize)>>20, 1), nil
}
