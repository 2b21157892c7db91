//go:build linux

package microvm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/flock"
)

// A guest that has booted and waits for its spec is stored as files: its memory, which
// the guests made from it map, each changing private copies of pages, and the state of its
// devices. It contains no data of a sandbox and no secret. The first create that needs such a
// machine boots it, once per boot of the host.
const (
	waitingPrefix = "guest-"
	unfinished    = ".new"
	ramFile       = "ram"
	deviceFile    = "devices"
	maxWaiting    = 8 // maximum number of stored guests; those unused for longest are removed
)

// waiting is such a guest, opened: its files stay while a machine starts from them, even
// if they are removed.
type waiting struct{ ram, devices *os.File }

func (d *Driver) openWaiting(ctx context.Context, dir string) (w waiting, err error) {
	if w.devices, err = os.Open(filepath.Join(dir, deviceFile)); err != nil {
		return w, err
	}
	if w.ram, err = d.seals.get(ctx, filepath.Join(dir, ramFile)); err != nil {
		w.devices.Close()
		return waiting{}, err
	}
	now := time.Now()
	os.Chtimes(dir, now, now) //nolint:errcheck // it is removed sooner then
	return w, nil
}

// waiting returns a stored guest for machines like m whose first process is shim.
func (d *Driver) waiting(ctx context.Context, m machine, k *kernel, shim string) (waiting, error) {
	key, err := d.keyOf(&m, k, shim)
	if err != nil {
		return waiting{}, err
	}
	dir := filepath.Join(d.images.dir, waitingPrefix+key)
	if w, err := d.openWaiting(ctx, dir); !errors.Is(err, fs.ErrNotExist) {
		return w, err
	}
	unlock, err := flock.Lock(ctx, filepath.Join(d.images.dir, "guests.lock"))
	if err != nil {
		return waiting{}, err
	}
	defer unlock()
	if w, err := d.openWaiting(ctx, dir); !errors.Is(err, fs.ErrNotExist) {
		return w, err
	}
	if err := d.tidy(); err != nil {
		return waiting{}, err
	}
	start := time.Now()
	if err := d.boot(ctx, m, k, shim, dir+unfinished); err != nil {
		return waiting{}, errors.Join(err, os.RemoveAll(dir+unfinished))
	}
	if err := os.Rename(dir+unfinished, dir); err != nil {
		return waiting{}, err
	}
	d.cfg.Log.Info("template guest booted", "image", m.image, "memory_mib", m.memoryMiB, "cpus", m.cpus, "took", time.Since(start).Round(time.Millisecond))
	return d.openWaiting(ctx, dir)
}

// keyOf returns a key of everything that the memory of a waiting guest depends on.
func (d *Driver) keyOf(m *machine, k *kernel, shim string) (string, error) {
	boot, err := live.BootID() // the processor may be another after a reboot
	if err != nil {
		return "", err
	}
	program, err := exec.LookPath(d.cfg.QEMU)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, board, boot, m.accel, m.memoryMiB, m.cpus, m.image, m.console)
	for _, path := range []string{program, k.image, shim} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: path, Err: err}
		}
		fmt.Fprintln(sum, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	}
	var image unix.Stat_t // the guest may have cached blocks of an image that was since replaced
	if err := unix.Stat(m.image, &image); err != nil {
		return "", &os.PathError{Op: "stat", Path: m.image, Err: err}
	}
	fmt.Fprintln(sum, image.Dev, image.Ino, image.Size, image.Mtim.Nano())
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// tidy frees space for one more and removes what interrupted boots have left.
// The lock must be held.
func (d *Driver) tidy() error {
	found, err := filepath.Glob(filepath.Join(d.images.dir, waitingPrefix+"*"))
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	for _, dir := range found {
		if fi, err := os.Stat(dir); err == nil && !strings.HasSuffix(dir, unfinished) {
			used[dir] = fi.ModTime()
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	for i, dir := range found {
		if _, whole := used[dir]; !whole || i >= maxWaiting-1 {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// boot boots a guest until it waits for its spec, and saves it to dir.
func (d *Driver) boot(ctx context.Context, m machine, k *kernel, shim, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	m.boots, m.ram = true, ramIn
	if err := k.writeInitrd(filepath.Join(dir, initrdFile), shim, vminit.Boot{}); err != nil {
		return err
	}
	q := &qemu{dir: dir, shim: shim, m: &m, diesWithParent: true}
	defer q.files.close()
	ram, err := os.OpenFile(filepath.Join(dir, ramFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err := q.files.take(ramFd, ram, err); err != nil {
		return err
	}
	// All users that reach it may write to it: in this directory only QEMU does.
	if err := errors.Join(ram.Chmod(0o666), ram.Truncate(int64(m.memoryMiB)<<20)); err != nil {
		return err
	}
	initrd, err := os.Open(filepath.Join(dir, initrdFile))
	if err := errors.Join(q.files.take(initrdFd, initrd, err), q.files.open(&m, k), q.files.listen(dir)); err != nil {
		return err
	}
	if err := d.attend(ctx, q, func(ctx context.Context) error { return freeze(ctx, dir) }); err != nil {
		return fmt.Errorf("boot a guest: %w; output of QEMU and the guest: %.200q", err, driver.ShimLog(dir))
	}
	return errors.Join(ram.Chmod(0o400), live.Remove(dir, initrdFile, socketFile, qmpFile, driver.LogFile))
}

// attend runs a QEMU that belongs to no sandbox until f returns, whose context ends with it.
func (d *Driver) attend(ctx context.Context, q *qemu, f func(context.Context) error) (err error) {
	if q.base, err = d.uid(sandbox.NewID()); err != nil {
		return err
	}
	defer d.uids.Free(q.base)
	q.group = cgroup.Reopen(nil)
	// It must die with hostd: with the thread that starts it.
	return live.OnThread(q.dir, func() (err error) {
		proc, run, err := d.start(ctx, q)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, live.Kill(context.WithoutCancel(ctx), proc)) }()
		if err := run(ctx); err != nil {
			return err
		}
		ctx, cancel := until(ctx, proc.Done())
		defer cancel()
		return f(ctx)
	})
}

// freeze stops the guest in dir when it waits for its spec, and saves its devices.
func freeze(ctx context.Context, dir string) error {
	conn, err := live.Dial(ctx, dir)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err := vminit.AwaitReady(conn); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	q, err := openQMP(ctx, dir)
	if err != nil {
		return err
	}
	defer q.close()
	if _, err := q.do("stop", nil); err != nil {
		return err
	}
	to, err := os.OpenFile(filepath.Join(dir, deviceFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(q.migrate(ctx, to, false), to.Close())
}
