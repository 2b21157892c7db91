package core

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/recovery"
)

const snapshotTimeout = 2 * time.Minute // for making a snapshot

const forksAtOnce = 16

// CreateSnapshot makes a snapshot of a sandbox, under a name that may be empty, and returns
// when that is done; the sandbox continues. A name and tag belong to one snapshot: an earlier
// one with the same is deleted. If the driver supports it the snapshot contains processes, too,
// which Snapshot.Memory reports. It returns Unimplemented if the driver cannot make snapshots,
// and NotFound unless the sandbox runs or is paused.
func (c *Core) CreateSnapshot(ctx context.Context, p Principal, id sandbox.ID, name string) (sandbox.Snapshot, error) {
	s, err := c.snapshot(ctx, p, id, events.TakeSnapshot{ID: sandbox.NewSnapshotID(), Name: name})
	if err == nil && name != "" {
		c.replaceNamed(ctx, p, name)
	}
	return s, err
}

// replaceNamed deletes all snapshots with a name and tag but the newest. If it fails, the next
// snapshot with the name retries it.
func (c *Core) replaceNamed(ctx context.Context, p Principal, name string) {
	all := c.named(p, name)
	for i := 1; i < len(all); i++ {
		if err := c.drop(ctx, all[i]); err != nil && !kind.Is(err, kind.NotFound) {
			c.Slog.Warn("delete replaced snapshot failed", "snapshot", all[i].ID, "name", name, "err", err)
		}
	}
	if len(all) > 1 {
		if err := c.pruneBases(ctx); err != nil {
			c.Slog.Warn("prune templates of snapshots failed", "name", name, "err", err)
		}
	}
}

// named returns a principal's snapshots with a name, newest first.
func (c *Core) named(p Principal, name string) []sandbox.Snapshot {
	return c.Snapshots(p, func(s *sandbox.Snapshot) bool { return s.Name != "" && Tagged(s.Name) == Tagged(name) })
}

func (c *Core) snapshot(ctx context.Context, p Principal, id sandbox.ID, take events.TakeSnapshot) (sandbox.Snapshot, error) {
	if p.Sandbox != "" {
		return sandbox.Snapshot{}, kind.New(kind.Denied, "snapshot", string(id), "a sandbox's token cannot make snapshots")
	}
	st, err := c.find(ctx, p, id)
	switch {
	case err != nil:
		return sandbox.Snapshot{}, err
	case !st.IsRunning() && !st.InPause():
		return sandbox.Snapshot{}, NoSandbox(id)
	case !st.Can.Files && !st.Can.Memory:
		return sandbox.Snapshot{}, kind.Newf(kind.Unimplemented, "snapshot", string(id), "driver %s cannot keep a sandbox's files here", st.Driver)
	}
	take.Memory = st.Can.Memory
	if _, err := c.Call(ctx, &st, process.NewID(id), "snapshot."+string(take.ID), take, snapshotTimeout); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := c.Sync(ctx); err != nil {
		return sandbox.Snapshot{}, err
	}
	s, ok := c.View.Snapshot(take.ID)
	if !ok {
		return s, kind.New(kind.Internal, "snapshot", string(take.ID), "the snapshot was made but is not in the view")
	}
	return s, nil
}

// FindSnapshot returns the snapshot that a client refers to: by its id, with or without a tag
// after it, or the newest with the name. It returns NotFound also for another tenant's.
func (c *Core) FindSnapshot(ctx context.Context, p Principal, ref string) (sandbox.Snapshot, error) {
	none := kind.Newf(kind.NotFound, "find snapshot", "", "snapshot '%s' not found", ref)
	if err := c.Sync(ctx); err != nil {
		return sandbox.Snapshot{}, err
	}
	ref, mine := p.OwnedName(ref)
	if !mine {
		return sandbox.Snapshot{}, none
	}
	base, _, _ := strings.Cut(ref, ":")
	if id, err := sandbox.ParseSnapshotID(base); err == nil {
		s, ok := c.View.Snapshot(id)
		if ok && !s.Deleted && s.Tenant == p.Tenant {
			return s, nil
		}
		return sandbox.Snapshot{}, none
	}
	found := c.named(p, ref)
	if len(found) == 0 {
		return sandbox.Snapshot{}, none
	}
	return found[0], nil
}

// SnapshotTags returns the principal's snapshots that share a name, by tag; or the one with
// a given snapshot id. It returns NotFound if there is no such snapshot.
func (c *Core) SnapshotTags(ctx context.Context, p Principal, ref string) ([]sandbox.Snapshot, error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	own, mine := p.OwnedName(ref)
	base, _, _ := strings.Cut(own, ":")
	all := c.Snapshots(p, func(s *sandbox.Snapshot) bool {
		name, _, _ := strings.Cut(s.Name, ":")
		return mine && base != "" && (name == base || string(s.ID) == base)
	})
	if len(all) == 0 {
		return nil, kind.Newf(kind.NotFound, "find snapshot", "", "snapshot '%s' not found", ref)
	}
	slices.SortFunc(all, func(a, b sandbox.Snapshot) int { return strings.Compare(Tagged(a.Name), Tagged(b.Name)) })
	return all, nil
}

// Snapshots returns the principal's snapshots for which keep returns true, newest first, as
// of the view.
func (c *Core) Snapshots(p Principal, keep func(*sandbox.Snapshot) bool) []sandbox.Snapshot {
	return c.View.Snapshots(func(s *sandbox.Snapshot) bool {
		return s.Tenant == p.Tenant && p.Sandbox == "" && !s.Deleted && !s.Internal && keep(s)
	})
}

// DeleteSnapshot marks a snapshot as deleted and removes its copy from the store; hosts remove
// the snapshot once no sandbox uses it. It returns NotFound for an unknown one.
func (c *Core) DeleteSnapshot(ctx context.Context, p Principal, ref string) error {
	if p.Sandbox != "" {
		return kind.New(kind.Denied, "delete snapshot", "", "a sandbox's token cannot delete snapshots")
	}
	s, err := c.FindSnapshot(ctx, p, ref)
	if err != nil {
		return err
	}
	if err := c.drop(ctx, s); err != nil {
		return err
	}
	if err := c.pruneBases(ctx); err != nil {
		c.Slog.Warn("prune templates of snapshots failed", "snapshot", s.ID, "err", err)
	}
	return nil
}

func (c *Core) drop(ctx context.Context, s sandbox.Snapshot) error {
	return c.dropIf(ctx, s.ID, func(*sandbox.Snapshot) bool { return true })
}

// dropIf marks a snapshot as deleted if may returns true for its current state.
func (c *Core) dropIf(ctx context.Context, id sandbox.SnapshotID, may func(now *sandbox.Snapshot) bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.CallTimeout)
	defer cancel()
	now, err := c.View.ChangeSnapshot(ctx, id, func(now *sandbox.Snapshot) bool {
		now.Deleted = may(now)
		return now.Deleted
	})
	if err != nil {
		return LogError("delete snapshot", string(id), err)
	}
	if !now.Deleted {
		return nil
	}
	if err := c.View.DropCopy(ctx, &now.Copy); err != nil {
		c.Slog.Warn("delete copy of snapshot failed, left to the reaper", "snapshot", id, "err", err)
	}
	return nil
}

// From returns req for a sandbox that starts from a snapshot: on its host or on one that can
// load it, with its limits, and at least as isolated as the snapshot's sandbox had to be.
func From(s *sandbox.Snapshot, req sandbox.Requested) sandbox.Requested {
	req.From, req.FromSandbox, req.FromHost = s.ID, s.Sandbox, s.Host
	req.Template = s.Template
	if s.Isolation.AtLeast(req.Isolation) {
		req.Isolation = s.Isolation
	}
	if s.Memory {
		req.Start = "" // its processes continue
	}
	req.CPUMilli, req.MemoryMiB, req.DiskMiB, req.PIDs = s.CPUMilli, s.MemoryMiB, s.DiskMiB, s.PIDs
	return req
}

// FromOwnSnapshot is From for a client's own snapshot: processes start with the environment, user and
// directory of the snapshot's sandbox.
func FromOwnSnapshot(s *sandbox.Snapshot, req sandbox.Requested) sandbox.Requested {
	env := maps.Clone(s.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env, req.User, req.Workdir, req.Start, req.Ready = env, s.User, s.Workdir, s.Start, s.Ready
	if req.Built = s.Name; s.Name == "" {
		req.Built, req.Alias = string(s.ID), "" // its id is the template's id, as with E2B
	}
	return From(s, req)
}

// Fork is a sandbox that ForkSandbox made, or the error that prevented it.
type Fork struct {
	State sandbox.State
	Err   error
}

// ForkSandbox creates sandboxes from the current files of another, and from its processes if
// its driver can keep them, which memory reports. It fails as a whole only if no snapshot of
// that sandbox can be made.
func (c *Core) ForkSandbox(ctx context.Context, p Principal, id sandbox.ID, count int, lifetime time.Duration) (forks []Fork, memory bool, err error) {
	snap, err := c.snapshot(ctx, p, id, events.TakeSnapshot{ID: sandbox.NewSnapshotID(), Internal: true})
	if err != nil {
		return nil, false, err
	}
	// The host keeps the snapshot for as long as a fork runs.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.CallTimeout)
		defer cancel()
		if err := c.drop(ctx, snap); err != nil {
			c.Slog.Warn("delete snapshot of fork failed, left to the reaper", "snapshot", snap.ID, "err", err)
		}
	}()
	st, err := c.Sandbox(p, id)
	if err != nil {
		return nil, false, err
	}
	req := From(&snap, st.Request)
	req.Lifetime = lifetime
	req.Network, req.AllowInternet = st.Network, st.Network.Internet // as it is now
	forks = make([]Fork, count)
	var wg sync.WaitGroup
	slots := make(chan struct{}, forksAtOnce)
	for i := range forks {
		wg.Go(func() {
			slots <- struct{}{}
			forks[i].Err = recovery.Do(c.Slog, "fork", func() (err error) {
				forks[i].State, err = c.CreateSandbox(ctx, p, req)
				return err
			})
			<-slots
		})
	}
	wg.Wait()
	return forks, snap.Memory, nil
}

// Reachable reports whether a snapshot is in the store or on a live host.
func (c *Core) Reachable(s *sandbox.Snapshot) bool {
	return s.Copy.Manifest != "" || c.HostAlive(s.Host)
}

// TemplateSnapshots returns the snapshots that hold the files of templates, also of other tenants':
// builds may use a public template of another tenant.
func (c *Core) TemplateSnapshots() map[sandbox.SnapshotID]bool {
	stands := map[sandbox.SnapshotID]bool{}
	for _, t := range c.View.Templates("") {
		if t.Built != nil {
			stands[sandbox.SnapshotID(t.Built.Snapshot)] = true
		}
	}
	return stands
}
