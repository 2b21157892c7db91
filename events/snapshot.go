package events

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

func snapshotSubject(tenant string, id sandbox.SnapshotID) string {
	return "snap." + tenant + "." + string(id)
}

// PutSnapshot stores what is known of a snapshot, in place of what its Rev says
// (0: nothing). Conflict as in AppendSandbox.
func (l *Log) PutSnapshot(ctx context.Context, s *sandbox.Snapshot) error {
	data, err := proto.Marshal(&pb.Snapshot{
		Id: string(s.ID), Tenant: s.Tenant, Sandbox: string(s.Sandbox), Host: s.Host, Driver: s.Driver, Template: s.Template,
		Name: s.Name, Memory: s.Memory, TakenNs: nanos(s.Taken), Deleted: s.Deleted, Internal: s.Internal,
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
		Name: b.Name, Memory: b.Memory, Taken: fromNanos(b.TakenNs), Deleted: b.Deleted, Internal: b.Internal, Rev: m.seq, Changed: m.time,
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

// ChangeSnapshot stores what change makes of what is known of a snapshot, again if
// somebody else wrote first, and gives what the view then has. change says whether
// there is something to store. NotFound if there is no such snapshot; one that was
// deleted is given as it is.
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
		v.unknow(id, s.Rev)
	}
}

// unknow forgets a snapshot of which nobody wrote anything newer than rev, though that is not
// in the log any more: it was deleted, and its record removed, while this view was cut off.
func (v *View) unknow(id sandbox.SnapshotID, rev uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.snapshots[id]; ok && s.Rev == rev {
		delete(v.snapshots, id)
		v.deleted++
		v.announce(true)
	}
}

// AwaitSnapshot waits until what is known of a snapshot satisfies done, or ctx's
// end; it gives what is known at that moment.
func (v *View) AwaitSnapshot(ctx context.Context, id sandbox.SnapshotID, done func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	var s sandbox.Snapshot
	err := v.wait(ctx, func() bool {
		s = v.snapshots[id]
		return done(&s)
	})
	return s, err
}

// Snapshot gives a snapshot, also one that was deleted.
func (v *View) Snapshot(id sandbox.SnapshotID) (sandbox.Snapshot, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.snapshots[id]
	return s, ok
}

// Snapshots gives those for which keep is true, newest first.
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

// Deletions is how many snapshots this view has seen deleted. It only grows, so that
// whoever has work to do for each sees by it whether there is any.
func (v *View) Deletions() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.deleted
}
