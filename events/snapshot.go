package events

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

func snapshotSubject(tenant string, id sandbox.SnapshotID) string {
	return "snap." + tenant + "." + string(id)
}

// PutSnapshot replaces the description of a snapshot, whose stream sequence is s.Rev (0:
// none yet). It returns Conflict as in AppendSandbox.
func (l *Log) PutSnapshot(ctx context.Context, s *sandbox.Snapshot) error {
	data, err := proto.Marshal(&pb.Snapshot{
		Id: string(s.ID), Tenant: s.Tenant, Sandbox: string(s.Sandbox), Host: s.Host, Driver: s.Driver, Template: s.Template,
		Name: s.Name, Memory: s.Memory, TakenNs: codec.Nanos(s.Taken), Deleted: s.Deleted, Internal: s.Internal,
		CpuMilli: s.CPUMilli, MemoryMib: s.MemoryMiB, DiskMib: s.DiskMiB, Pids: s.PIDs, Layer: s.Layer,
		Env: s.Env, User: s.User, Workdir: s.Workdir, Start: s.Start, Ready: s.Ready,
		Fits: s.Fits, Isolation: string(s.Isolation), Copy: encodeCopy(&s.Copy),
	})
	if err != nil {
		return kind.Wrap(kind.Internal, "put snapshot", string(s.ID), err)
	}
	_, err = l.put(ctx, streamSnapshots, snapshotSubject(s.Tenant, s.ID), s.Rev, data)
	return err
}

func (v *View) applySnapshot(m stored) error {
	var b pb.Snapshot
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return err
	}
	id, err := sandbox.ParseSnapshotID(b.Id)
	if err != nil {
		return err
	}
	if b.Deleted && !v.snapshots[id].Deleted {
		v.deleted++
	}
	v.snapshots[id] = sandbox.Snapshot{
		ID: id, Tenant: b.Tenant, Sandbox: sandbox.ID(b.Sandbox), Host: b.Host, Driver: b.Driver, Template: b.Template,
		Name: b.Name, Memory: b.Memory, Taken: codec.Time(b.TakenNs), Deleted: b.Deleted, Internal: b.Internal, Rev: m.seq, Changed: m.time,
		CPUMilli: b.CpuMilli, MemoryMiB: b.MemoryMib, DiskMiB: b.DiskMib, PIDs: b.Pids, Layer: b.Layer,
		Env: b.Env, User: b.User, Workdir: b.Workdir, Start: b.Start, Ready: b.Ready,
		Fits: b.Fits, Isolation: sandbox.Isolation(b.Isolation), Copy: decodeCopy(b.Copy),
	}
	return nil
}

func encodeCopy(c *sandbox.Copy) *pb.Copy {
	return &pb.Copy{Manifest: []byte(c.Manifest), Wanted: c.Wanted, Kind: uint32(c.Refusal), Reason: c.Reason}
}

func decodeCopy(b *pb.Copy) sandbox.Copy {
	return sandbox.Copy{Manifest: string(b.GetManifest()), Wanted: b.GetWanted(), Refusal: kind.Kind(b.GetKind()), Reason: b.GetReason()}
}

// ChangeSnapshot applies change to a snapshot and stores the result, again if another
// writer was first, and returns the snapshot that the view then has. change reports whether
// there is anything to store. ChangeSnapshot returns NotFound if the snapshot does not
// exist, and a deleted one unchanged.
func (v *View) ChangeSnapshot(ctx context.Context, id sandbox.SnapshotID, change func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	for {
		s, ok := v.Snapshot(id)
		if !ok {
			return s, kind.Newf(kind.NotFound, "change snapshot", string(id), "snapshot '%s' not found", id)
		}
		if s.Deleted || !change(&s) {
			return s, nil
		}
		err := v.l.PutSnapshot(ctx, &s)
		if err != nil && !kind.Is(err, kind.Conflict) {
			return s, err
		}
		if err := v.Sync(ctx); err != nil {
			return s, err
		}
		if err == nil {
			s, _ = v.Snapshot(id)
			return s, nil
		}
		v.dropRemoved(id, s.Rev)
	}
}

// dropRemoved drops a snapshot from the view that has not changed since rev but has left the
// log: it was deleted, and its record removed, while this view was disconnected.
func (v *View) dropRemoved(id sandbox.SnapshotID, rev uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.snapshots[id]; ok && s.Rev == rev {
		delete(v.snapshots, id)
		v.deleted++
		v.announce(true)
	}
}

// AwaitSnapshot waits until done accepts a snapshot or ctx ends, and returns the snapshot
// at that moment.
func (v *View) AwaitSnapshot(ctx context.Context, id sandbox.SnapshotID, done func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	var s sandbox.Snapshot
	err := v.wait(ctx, func() bool {
		s = v.snapshots[id]
		return done(&s)
	})
	return s, err
}

// Snapshot returns a snapshot, including a deleted one.
func (v *View) Snapshot(id sandbox.SnapshotID) (sandbox.Snapshot, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.snapshots[id]
	return s, ok
}

// Snapshots returns the snapshots for which keep is true, newest first.
func (v *View) Snapshots(keep func(*sandbox.Snapshot) bool) []sandbox.Snapshot {
	v.mu.Lock()
	var out []sandbox.Snapshot
	for _, s := range v.snapshots {
		if keep(&s) {
			out = append(out, s)
		}
	}
	v.mu.Unlock()
	slices.SortFunc(out, func(a, b sandbox.Snapshot) int { return sandbox.CompareSnapshots(&a, &b) })
	return out
}

// Deletions returns how many snapshots this view has seen deleted. It only grows, so that a
// caller with work for each deletion can detect new ones.
func (v *View) Deletions() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.deleted
}
