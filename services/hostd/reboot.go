package hostd

import (
	"context"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/journal"
)

// A reboot gives a sandbox a new instance, created from the files of the old one: nothing of the
// kernel's state is left, neither shared memory, nor abstract sockets, nor the time since boot.
// The new instance is created beside the old one, which is removed when the journal has the new
// one; if the host is killed in between, the next run has one of them and removes the other.

// renewFrom is the directory, in that of an instance, with the files it was made from.
const renewFrom = "from"

// instance returns the driver's instance of the sandbox; nil without one.
func (sb *hostSandbox) instance() driver.Instance {
	sb.instMu.RLock()
	defer sb.instMu.RUnlock()
	return sb.inst
}

// instanceID returns the name of the instance and its directory.
func (sb *hostSandbox) instanceID() sandbox.ID {
	sb.instMu.RLock()
	defer sb.instMu.RUnlock()
	return sb.instID
}

func (sb *hostSandbox) setInstance(instID sandbox.ID, inst driver.Instance) {
	sb.instMu.Lock()
	defer sb.instMu.Unlock()
	sb.instID, sb.inst = instID, inst
}

// renew replaces the instance of a sandbox whose processes have ended. The instance stays if the
// driver cannot keep files, or its chain of layers has the maximum length.
func (sb *hostSandbox) renew(ctx context.Context) error {
	if !sb.created.Can.Files {
		return nil
	}
	sb.snapshotMu.Lock()
	defer sb.snapshotMu.Unlock()
	h, old, was, instID := sb.h, sb.instance(), sb.instanceID(), sandbox.NewID()
	if err := h.journal.SetSandbox(instID, journal.Created{Driver: sb.driver.Name()}); err != nil {
		return err
	}
	inst, err := sb.rebuild(ctx, old, instID)
	if err != nil {
		sb.discardInstance(ctx, instID, inst)
		if kind.Is(err, kind.Exhausted) {
			h.slog.Warn("a rebooted sandbox keeps its instance", "sandbox", sb.id, "err", err)
			return nil
		}
		return err
	}
	if err := h.fault("rebuilt"); err != nil {
		return err
	}
	sb.journaling.Wait()
	if err := h.journal.Assign(sb.id, journal.Created{Driver: sb.driver.Name(), Instance: instID, Trees: journal.TreesOf(sb.tree, sb.snapshotTree)}); err != nil {
		sb.discardInstance(ctx, instID, inst)
		return err
	}
	if err := h.fault("renewed"); err != nil {
		return err
	}
	sb.setInstance(instID, inst)
	sb.mu.Lock()
	conn := sb.conn
	sb.unplug()
	sb.mu.Unlock()
	if conn != nil {
		sb.disconnect(conn)
	}
	if err := h.remove(context.WithoutCancel(ctx), sb.driver, was, old); err != nil { // otherwise the next run removes it
		h.slog.Error("remove replaced instance failed", "sandbox", sb.id, "instance", was, "err", err)
	}
	return nil
}

// rebuild creates an instance from the files of another.
func (sb *hostSandbox) rebuild(ctx context.Context, old driver.Instance, instID sandbox.ID) (driver.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	spec := sb.spec()
	spec.ID, spec.Dir, spec.Hostname = instID, sb.h.dirOf(instID), string(sb.id)
	spec.From = filepath.Join(spec.Dir, renewFrom)
	if err := os.MkdirAll(spec.From, 0o700); err != nil {
		return nil, err
	}
	if err := old.Snapshot(ctx, spec.From, false); err != nil {
		return nil, err
	}
	var err error
	if spec.Volumes, err = sb.h.volumes.Mounts(&sb.req); err != nil {
		return nil, err
	}
	return sb.h.build(ctx, sb.driver, spec)
}

// discardInstance removes an instance that is not used after all.
func (sb *hostSandbox) discardInstance(ctx context.Context, instID sandbox.ID, inst driver.Instance) {
	err := sb.h.remove(context.WithoutCancel(ctx), sb.driver, instID, inst)
	if err == nil {
		err = sb.h.journal.Forget(instID)
	}
	if err != nil { // the next run removes it
		sb.h.slog.Error("remove unused instance failed", "sandbox", sb.id, "instance", instID, "err", err)
	}
}
