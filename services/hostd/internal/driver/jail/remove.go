package jail

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
)

// sweep removes what exists of a sandbox, all or any part of it, in the reverse
// order of creation.
func (d *Driver) sweep(ctx context.Context, dir string, state live.State) error {
	jid := jailName(state.ID)
	if err := d.removeJail(ctx, jid); err != nil {
		return err
	}
	// A jail that was made without a file of jails leaves its devfs mounted. Anything that
	// remains mounted makes the removal of the clone fail with an error.
	d.tools.run(ctx, "umount", "-f", filepath.Join(dir, rootDir, "dev")) //nolint:errcheck // reported by zfs destroy
	if d.limited() {
		switch rules, err := d.tools.ask(ctx, "rctl", "jail:"+jid); {
		case err != nil:
			return err
		case rules:
			if _, err := d.tools.run(ctx, "rctl", "-r", "jail:"+jid); err != nil {
				return err
			}
		}
	}
	switch there, err := d.tools.ask(ctx, "zfs", "list", "-H", "-o", "name", state.Dataset); {
	case err != nil:
		return err
	case there:
		if _, err := d.tools.run(ctx, "zfs", "destroy", "-r", state.Dataset); err != nil {
			return err
		}
	}
	// Never recursively: if the clone is still mounted, its contents are the sandbox's.
	if err := os.Remove(filepath.Join(dir, rootDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return live.Remove(dir, driver.Files()...)
}

// removeJail ends a jail and all processes in it.
func (d *Driver) removeJail(ctx context.Context, jid string) error {
	there, err := d.tools.ask(ctx, "jls", "-j", jid, "jid")
	if err != nil || !there {
		return err
	}
	_, err = d.tools.run(ctx, "jail", "-r", jid)
	return err
}

// streamFile is the name of a snapshot's file: one stream of zfs-send(8).
const streamFile = "files.zfs"

// Snapshot implements driver.Instance. The instance need not be paused:
// the file system is copied as of one moment.
func (b *instance) Snapshot(ctx context.Context, dir string, memory bool) error {
	if memory {
		return b.Instance.Snapshot(ctx, dir, memory)
	}
	err := b.snapshot(ctx, filepath.Join(dir, streamFile))
	of := kind.Of(err)
	select {
	case <-b.Done():
		of = kind.Unavailable
	default:
	}
	return kind.Wrap(of, "snapshot sandbox", string(b.State.ID), err)
}

func (b *instance) snapshot(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	at := b.dataset + "@" + filepath.Base(filepath.Dir(path)) + "-" + time.Now().UTC().Format("20060102150405.000000000")
	if _, err := b.d.tools.run(ctx, "zfs", "snapshot", at); err != nil {
		return err
	}
	err = b.d.tools.pipe(ctx, nil, f, "zfs", "send", at)
	_, removed := b.d.tools.run(context.WithoutCancel(ctx), "zfs", "destroy", at)
	return errors.Join(err, removed)
}

// measure returns the usage that zfs and rctl report; where the kernel does not account, it
// adds up the processes.
func (d *Driver) measure(ctx context.Context, state *live.State) (driver.Stats, error) {
	var s driver.Stats
	disk, err := d.tools.run(ctx, "zfs", "list", "-H", "-p", "-o", "used", state.Dataset)
	if err != nil {
		return s, err
	}
	if !d.limited() {
		s, _, err = live.Measure(nil, state.PID)
		s.DiskBytes = number(disk)
		return s, err
	}
	s.DiskBytes = number(disk)
	used, err := d.tools.run(ctx, "rctl", "-u", "jail:"+jailName(state.ID))
	for line := range strings.SplitSeq(used, "\n") {
		switch key, value, _ := strings.Cut(line, "="); key {
		case "cputime":
			s.CPU = time.Duration(number(value)) * time.Second
		case "memoryuse":
			s.MemoryBytes = number(value)
		case "maxproc":
			s.Processes = uint32(number(value))
		}
	}
	return s, err
}
