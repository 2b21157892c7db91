package sandboxes

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

// renew replaces the instance of a sandbox whose processes have ended. The instance stays if the
// driver cannot keep files, or its chain of layers has the maximum length.
func (ps *pausing) renew(ctx context.Context) error {
	if !ps.sb.created.Can.Files {
		return nil
	}
	ps.sb.snapshots.mu.Lock()
	defer ps.sb.snapshots.mu.Unlock()
	cfg, old, was, instID := ps.sb.cfg, ps.sb.current.Instance(), ps.sb.current.Name(), sandbox.NewID()
	if err := cfg.Journal.SetSandbox(instID, journal.Created{Driver: ps.sb.driver.Name()}); err != nil {
		return err
	}
	inst, err := ps.rebuild(ctx, old, instID)
	if err != nil {
		ps.discardInstance(ctx, instID, inst)
		if kind.Is(err, kind.Exhausted) {
			cfg.Slog.Warn("a rebooted sandbox keeps its instance", "sandbox", ps.sb.id, "err", err)
			return nil
		}
		return err
	}
	if err := cfg.Fault("rebuilt"); err != nil {
		return err
	}
	ps.sb.current.Journaled() //nolint:errcheck // running has reported it
	if err := cfg.Journal.Assign(ps.sb.id, journal.Created{Driver: ps.sb.driver.Name(), Instance: instID, Trees: journal.TreesOf(ps.sb.files.tree, ps.sb.files.snapshotTree)}); err != nil {
		ps.discardInstance(ctx, instID, inst)
		return err
	}
	if err := cfg.Fault("renewed"); err != nil {
		return err
	}
	ps.sb.meterNow(ctx) // the new instance counts from zero
	ps.sb.current.Set(instID, inst)
	ps.sb.network.UnplugReplaced()
	ps.sb.session.Reconnect()
	if err := cfg.Instances.Remove(context.WithoutCancel(ctx), ps.sb.driver, was, old); err != nil { // otherwise the next run removes it
		cfg.Slog.Error("remove replaced instance failed", "sandbox", ps.sb.id, "instance", was, "err", err)
	}
	return nil
}

// rebuild creates an instance from the files of another.
func (ps *pausing) rebuild(ctx context.Context, old driver.Instance, instID sandbox.ID) (driver.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	spec := ps.sb.files.spec()
	spec.ID, spec.Dir, spec.Hostname = instID, ps.sb.cfg.Instances.Dir(instID), string(ps.sb.id)
	spec.From = filepath.Join(spec.Dir, renewFrom)
	if err := os.MkdirAll(spec.From, 0o700); err != nil {
		return nil, err
	}
	if err := old.Snapshot(ctx, spec.From, false); err != nil {
		return nil, err
	}
	var err error
	if spec.Volumes, err = ps.sb.cfg.Volumes.Mounts(ctx, &ps.sb.req); err != nil {
		return nil, err
	}
	return ps.sb.cfg.Instances.Build(ctx, ps.sb.driver, spec)
}

// discardInstance removes an instance that is not used after all.
func (ps *pausing) discardInstance(ctx context.Context, instID sandbox.ID, inst driver.Instance) {
	err := ps.sb.cfg.Instances.Remove(context.WithoutCancel(ctx), ps.sb.driver, instID, inst)
	if err == nil {
		err = ps.sb.cfg.Journal.Forget(instID)
	}
	if err != nil { // the next run removes it
		ps.sb.cfg.Slog.Error("remove unused instance failed", "sandbox", ps.sb.id, "instance", instID, "err", err)
	}
}
