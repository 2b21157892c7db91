package jail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	if err := live.CheckVacant(ctx, d, s); err != nil {
		return nil, err
	}
	template := ""
	if s.From == "" {
		var err error
		if template, err = d.template(ctx, cmp.Or(s.Template, "base")); err != nil {
			return nil, kind.Wrap(kind.Of(err), "create sandbox", string(s.ID), err)
		}
	}
	boot, err := live.BootID()
	if err != nil {
		return nil, kind.Wrap(kind.Internal, "create sandbox", string(s.ID), err)
	}
	state := live.State{Driver: name, ID: s.ID, Boot: boot, Dataset: d.pool + "/run/" + string(s.ID)}
	proc, err := d.make(ctx, s, template, &state)
	if err != nil {
		return nil, live.Rollback(ctx, d.log, s.Dir, state, d.sweep, err)
	}
	return d.newInstance(s.Dir, state, proc), nil
}

// make makes a sandbox. It saves the state before it makes the first thing that the state
// names.
func (d *Driver) make(ctx context.Context, s driver.Spec, template string, state *live.State) (*live.Proc, error) {
	if err := state.Save(s.Dir); err != nil {
		return nil, err
	}
	root := filepath.Join(s.Dir, rootDir)
	if err := d.fill(ctx, s, template, root, state.Dataset); err != nil {
		return nil, err
	}
	if err := install(root, s.ShimPath); err != nil {
		return nil, fmt.Errorf("install the shim in the jail: %w", err)
	}
	if _, err := d.tools.run(ctx, "jail", "-c", "name="+jailName(s.ID), "path="+root, "host.hostname="+string(s.ID),
		"persist", "mount.devfs", "devfs_ruleset=4", "children.max=0", "enforce_statfs=2", "securelevel=2",
		"exec.clean", "vnet", "exec.start="+loopback); err != nil {
		return nil, err
	}
	for _, rule := range d.rules(s) {
		if _, err := d.tools.run(ctx, "rctl", "-a", rule); err != nil {
			return nil, err
		}
	}
	return d.start(ctx, s, state)
}

// loopback configures the only interface of a jail with a network stack of its own.
const loopback = "/sbin/ifconfig lo0 inet 127.0.0.1/8 up"

// fill makes the sandbox's files, mounted at root. The data set's set-uid programs work only
// with sudo in a template, since this driver brings no sudo.
func (d *Driver) fill(ctx context.Context, s driver.Spec, template, root, dataset string) error {
	set := []string{"-o", "mountpoint=" + root, "-o", "setuid=" + onOff(s.Sudo && s.Root != "")}
	if s.DiskMiB > 0 {
		set = append(set, "-o", fmt.Sprintf("quota=%dM", s.DiskMiB))
	}
	if s.From == "" {
		_, err := d.tools.run(ctx, "zfs", slices.Concat([]string{"clone"}, set, []string{template, dataset})...)
		return err
	}
	f, err := os.Open(filepath.Join(s.From, streamFile))
	if errors.Is(err, fs.ErrNotExist) {
		return kind.New(kind.NotFound, "find snapshot", "", "snapshot not found")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return d.tools.pipe(ctx, f, nil, "zfs", slices.Concat([]string{"receive"}, set, []string{dataset})...)
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// rules returns the limits; none where the kernel does not account for resources.
func (d *Driver) rules(s driver.Spec) []string {
	if !d.limited() {
		return nil
	}
	subject := "jail:" + jailName(s.ID) + ":"
	rules := []string{fmt.Sprintf("%smaxproc:deny=%d", subject, s.MaxPIDs(driver.MaxProcesses))}
	if s.MemoryMiB > 0 {
		rules = append(rules, fmt.Sprintf("%smemoryuse:deny=%dm", subject, s.MemoryMiB))
	}
	if s.CPUMilli > 0 {
		rules = append(rules, fmt.Sprintf("%spcpu:deny=%d", subject, max(s.CPUMilli/10, 1)))
	}
	return rules
}

// start starts the shim in the jail and waits until it accepts.
func (d *Driver) start(ctx context.Context, s driver.Spec, state *live.State) (*live.Proc, error) {
	null, log, err := live.Streams(s.Dir)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	defer log.Close()
	listener, err := live.Listen(s.Dir)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	attr := &syscall.SysProcAttr{Setsid: true}
	pidfd := live.PidFD(attr)
	p, err := os.StartProcess(d.tools.path("jexec"), append([]string{"jexec"}, command(s)...), &os.ProcAttr{
		Sys: attr, Files: []*os.File{null, null, log, listener, null},
	})
	if err != nil {
		return nil, err
	}
	proc, err := live.Watch(p, *pidfd)
	if err != nil {
		return nil, err
	}
	listener.Close()
	state.PID = proc.PID
	if state.Start, err = live.StartTime(proc.PID); err == nil {
		err = state.Save(s.Dir)
	}
	if err == nil {
		err = live.AwaitAccept(ctx, s.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %q", err, driver.ShimLog(s.Dir))
	}
	return proc, nil
}

// command returns jexec's arguments to start the shim in the jail.
func command(s driver.Spec) []string {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": "/home/user", "USER": "user", "LOGNAME": "user", "SHELL": "/bin/sh", "LANG": "C.UTF-8",
	}
	for k, v := range s.Env {
		env[k] = v
	}
	args := append([]string{"-l", "-U", "root", jailName(s.ID)}, limits(s)...)
	args = append(args, "/usr/bin/env", "-i")
	for _, k := range slices.Sorted(maps.Keys(env)) {
		args = append(args, k+"="+env[k])
	}
	return append(append(args, shimInside), s.ShimArgs...)
}

// limits returns the command that limits each process; jexec would reset limits of its own.
func limits(s driver.Spec) []string {
	args := []string{"/usr/bin/limits", "-B", "-n", strconv.FormatUint(uint64(cmp.Or(s.OpenFiles, driver.DefaultOpenFiles)), 10)}
	if s.DiskMiB > 0 {
		args = append(args, "-f", fmt.Sprintf("%dm", s.DiskMiB))
	}
	return args
}

// template returns the last snapshot of a template.
func (d *Driver) template(ctx context.Context, template string) (string, error) {
	if !validName(template) {
		return "", kind.Newf(kind.NotFound, "find template", "", "template %q not found", template)
	}
	set := d.pool + "/tpl/" + template
	ok, err := d.tools.ask(ctx, "zfs", "list", "-H", "-o", "name", set)
	if err != nil {
		return "", err
	}
	last := ""
	if ok {
		all, err := d.tools.run(ctx, "zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-s", "creation", "-d", "1", set)
		if err != nil {
			return "", err
		}
		last = lastLine(all)
	}
	if last == "" {
		return "", kind.Newf(kind.NotFound, "find template", "", "template %q not found", template)
	}
	return last, nil
}

// validName reports whether a template's name can be part of a data set's name.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && s[0] != '-'
}

// install copies the shim into a root whose contents may be hostile: it follows no link
// out of it.
func install(root, shim string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.RemoveAll(shimDir); err != nil {
		return err
	}
	if err := dir.Mkdir(shimDir, 0o755); err != nil {
		return err
	}
	src, err := os.Open(shim)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := dir.OpenFile(shimInside[1:], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o555)
	if err != nil {
		return err
	}
	_, err = dst.ReadFrom(src)
	return errors.Join(err, dst.Close())
}

const (
	shimDir    = ".millrace"
	shimInside = "/" + shimDir + "/shim"
)

// number parses a number of zfs or rctl; 0 for anything else.
func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
