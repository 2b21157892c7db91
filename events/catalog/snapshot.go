package catalog

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// snapshotDocs describes snapshots.
var snapshotDocs = &fold.Document[sandbox.SnapshotID, sandbox.Snapshot]{
	Name: "snapshot", Stream: streams.Snapshots, Notify: true,
	Subject: func(s *sandbox.Snapshot) string { return snapshotSubject(s.Tenant, s.ID) },
	Key:     func(s *sandbox.Snapshot) sandbox.SnapshotID { return s.ID },
	Compare: func(a, b sandbox.Snapshot) int { return sandbox.CompareSnapshots(&a, &b) },
	Rev:     func(s *sandbox.Snapshot) uint64 { return s.Rev },
	Encode:  encodeSnapshot,
	Decode:  decodeSnapshot,
	Over:    func(s *sandbox.Snapshot) (time.Time, bool) { return s.Changed, s.Deleted },
	Keep:    deletedAge + viewAge,
	Find:    func(subject string) sandbox.SnapshotID { return sandbox.SnapshotID(lastToken(subject)) },
}

func snapshotSubject(tenant string, id sandbox.SnapshotID) string {
	return "snap." + tenant + "." + string(id)
}

func encodeSnapshot(s *sandbox.Snapshot) proto.Message {
	return &pb.Snapshot{
		Id: string(s.ID), Tenant: s.Tenant, Sandbox: string(s.Sandbox), Host: s.Host, Driver: s.Driver, Template: s.Template,
		Name: s.Name, Memory: s.Memory, TakenNs: codec.Nanos(s.Taken), Deleted: s.Deleted, Internal: s.Internal,
		CpuMilli: s.CPUMilli, MemoryMib: s.MemoryMiB, DiskMib: s.DiskMiB, Pids: s.PIDs, Layer: s.Layer,
		SealedEnv: []byte(s.Sealed), User: s.User, Workdir: s.Workdir, Start: s.Start, Ready: s.Ready,
		Fits: s.Fits, Isolation: string(s.Isolation), Copy: encodeCopy(&s.Copy),
	}
}

func decodeSnapshot(m store.Message) (sandbox.Snapshot, error) {
	var b pb.Snapshot
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return sandbox.Snapshot{}, err
	}
	id, err := sandbox.ParseSnapshotID(b.Id)
	return sandbox.Snapshot{
		ID: id, Tenant: b.Tenant, Sandbox: sandbox.ID(b.Sandbox), Host: b.Host, Driver: b.Driver, Template: b.Template,
		Name: b.Name, Memory: b.Memory, Taken: codec.Time(b.TakenNs), Deleted: b.Deleted, Internal: b.Internal, Rev: m.Seq, Changed: m.Time,
		Resources: sandbox.Resources{CPUMilli: b.CpuMilli, MemoryMiB: b.MemoryMib, DiskMiB: b.DiskMib, PIDs: b.Pids}, Layer: b.Layer,
		Defaults: sandbox.Defaults{Env: b.Env, Sealed: seal.Text(b.SealedEnv), User: b.User, Workdir: b.Workdir, Start: b.Start, Ready: b.Ready},
		Fits:     b.Fits, Isolation: sandbox.Isolation(b.Isolation), Copy: decodeCopy(b.Copy),
	}, err
}

func encodeCopy(c *sandbox.Copy) *pb.Copy {
	return &pb.Copy{Manifest: []byte(c.Manifest), Wanted: c.Wanted, Kind: uint32(c.Refusal), Reason: c.Reason}
}

func decodeCopy(b *pb.Copy) sandbox.Copy {
	return sandbox.Copy{Manifest: string(b.GetManifest()), Wanted: b.GetWanted(), Refusal: kind.Kind(b.GetKind()), Reason: b.GetReason()}
}

// PutSnapshot replaces the description of a snapshot, whose stream sequence is s.Rev (0:
// none yet). It returns Conflict as in AppendSandbox.
func (d *Documents) PutSnapshot(ctx context.Context, s *sandbox.Snapshot) error {
	_, err := snapshotDocs.Put(ctx, d.conn, s)
	return err
}

// ChangeSnapshot applies change to a snapshot and stores the result, again if another
// writer was first, and returns the snapshot that the view then has. change reports whether
// there is anything to store. ChangeSnapshot returns NotFound if the snapshot does not
// exist, and a deleted one unchanged.
func (v *View) ChangeSnapshot(ctx context.Context, id sandbox.SnapshotID, change func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	return v.snapshots.Change(ctx, id, change)
}

// AwaitSnapshot waits until done accepts a snapshot or ctx ends, and returns the snapshot
// at that moment.
func (v *View) AwaitSnapshot(ctx context.Context, id sandbox.SnapshotID, done func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	return v.snapshots.Await(ctx, id, done)
}

// Snapshot returns a snapshot, including a deleted one.
func (v *View) Snapshot(id sandbox.SnapshotID) (sandbox.Snapshot, bool) { return v.snapshots.Get(id) }

// Snapshots returns the snapshots for which keep is true, newest first.
func (v *View) Snapshots(keep func(*sandbox.Snapshot) bool) []sandbox.Snapshot {
	return v.snapshots.List(keep)
}

// Deletions returns how many snapshots this view has seen deleted. It only grows, so that a
// caller with work for each deletion can detect new ones.
func (v *View) Deletions() uint64 {
	v.progress.Lock()
	defer v.progress.Unlock()
	return v.snapshots.Ended
}
