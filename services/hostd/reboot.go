package hostd

import (
	"context"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// A reboot gives a sandbox a new instance, created from the files of the old one: nothing of the
// kernel's state is left, neither shared memory, nor abstract sockets, nor the time since boot.
// The new instance is created beside the old one, which is removed when the journal has the new
// one; if the host is killed in between, the next run has one of them and removes the other.

// renewFrom is the directory, in that of an instance, with the files it was made from.
const renewFrom = "from"

// instance returns the driver's instance of the sandbox; nil without one.
func (b *box) instance() driver.Instance {
	b.where.RLock()
	defer b.where.RUnlock()
	return b.inst
}

// instanceID returns the name of the instance and its directory.
func (b *box) placeName() sandbox.ID {
	b.where.RLock()
	defer b.where.RUnlock()
	return b.place
}

func (b *box) settle(place sandbox.ID, inst driver.Instance) {
	b.where.Lock()
	defer b.where.Unlock()
	b.place, b.inst = place, inst
}

// renew replaces the instance of a sandbox whose processes have ended. The instance stays if the
// driver cannot keep files, or its chain of layers has the maximum length.
func (b *box) renew(ctx context.Context) error {
	if !b.made.Can.Files {
		return nil
	}
	b.keeping.Lock()
	defer b.keeping.Unlock()
	h, old, was, place := b.h, b.instance(), b.placeName(), sandbox.NewID()
	if err := h.journal.setSandbox(place, made{driver: b.driver.Name()}); err != nil {
		return err
	}
	inst, err := b.rebuild(ctx, old, place)
	if err != nil {
		b.forsake(ctx, place, inst)
		if kind.Is(err, kind.Exhausted) {
			h.slog.Warn("a rebooted sandbox keeps its instance", "sandbox", b.id, "err", err)
			return nil
		}
		return err
	}
	if err := h.fault("rebuilt"); err != nil {
		return err
	}
	b.handing.Wait()
	if err := h.journal.hand(b.id, made{b.driver.Name(), place, treesOf(b.tree, b.from)}); err != nil {
		b.forsake(ctx, place, inst)
		return err
	}
	if err := h.fault("renewed"); err != nil {
		return err
	}
	b.settle(place, inst)
	b.mu.Lock()
	conn := b.conn
	b.unplug()
	b.mu.Unlock()
	if conn != nil {
		b.disconnect(conn)
	}
	if err := h.remove(context.WithoutCancel(ctx), b.driver, was, old); err != nil { // otherwise the next run removes it
		h.slog.Error("remove replaced instance failed", "sandbox", b.id, "instance", was, "err", err)
	}
	return nil
}

// rebuild creates an instance from the files of another.
func (b *box) rebuild(ctx context.Context, old driver.Instance, place sandbox.ID) (driver.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	spec := b.spec()
	spec.ID, spec.Dir, spec.Hostname = place, b.h.dirOf(place), string(b.id)
	spec.From = filepath.Join(spec.Dir, renewFrom)
	if err := os.MkdirAll(spec.From, 0o700); err != nil {
		return nil, err
	}
	if err := old.Snapshot(ctx, spec.From, false); err != nil {
		return nil, err
	}
	var err error
	if spec.Volumes, err = b.h.mounts(&b.req); err != nil {
		return nil, err
	}
	return b.h.build(ctx, b.driver, spec)
}

// discardInstance removes an instance that is not used after all.
func (b *box) forsake(ctx context.Context, place sandbox.ID, inst driver.Instance) {
	err := b.h.remove(context.WithoutCancel(ctx), b.driver, place, inst)
	if err == nil {
		err = b.h.journal.forgetSandbox(place)
	}
	if err != nil { // the next run removes it
		b.h.slog.Error("remove unused instance failed", "sandbox", b.id, "instance", place, "err", err)
	}
}
