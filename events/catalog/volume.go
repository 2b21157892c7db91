package catalog

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// volumeDocs describes volumes. A view finds them by their subject.
var volumeDocs = &fold.Document[string, sandbox.Volume]{
	Name: "volume", Stream: streams.Volumes, Notify: true,
	Subject: subjectOfVolume,
	Key:     subjectOfVolume,
	Compare: func(a, b sandbox.Volume) int { return strings.Compare(subjectOfVolume(&a), subjectOfVolume(&b)) },
	Rev:     func(s *sandbox.Volume) uint64 { return s.Rev },
	Encode:  encodeVolume,
	Decode:  decodeVolume,
	Over:    func(s *sandbox.Volume) (time.Time, bool) { return s.Changed, s.Over() },
	Keep:    deletedAge + viewAge,
	Find:    func(subject string) string { return subject },
}

// The subject has the name, not the id, so that names are unique.
func volumeSubject(tenant, name string) string { return "vol." + tenant + "." + name }

func subjectOfVolume(s *sandbox.Volume) string { return volumeSubject(s.Tenant, s.Name) }

func encodeVolume(s *sandbox.Volume) proto.Message {
	return &pb.Volume{
		Id: string(s.ID), Tenant: s.Tenant, Name: s.Name, Host: s.Host,
		CreatedNs: codec.Nanos(s.Created), Made: s.Made, Deleted: s.Deleted,
	}
}

func decodeVolume(m store.Message) (sandbox.Volume, error) {
	var b pb.Volume
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return sandbox.Volume{}, err
	}
	id, err := sandbox.ParseVolumeID(b.Id)
	return sandbox.Volume{
		ID: id, Tenant: b.Tenant, Name: b.Name, Host: b.Host,
		Created: codec.Time(b.CreatedNs), Made: b.Made, Deleted: b.Deleted, Rev: m.Seq, Changed: m.Time,
	}, err
}

// NewVolume stores a new volume, ignoring its Rev. It returns Conflict if the tenant has a
// volume of that name, perhaps one that was deleted and is being removed.
func (d *Documents) NewVolume(ctx context.Context, s *sandbox.Volume) error {
	return volumeDocs.Create(ctx, d.conn, s)
}

// PutVolume replaces the description of a volume with stream sequence s.Rev. It returns
// Conflict as in AppendSandbox.
func (d *Documents) PutVolume(ctx context.Context, s *sandbox.Volume) error {
	_, err := volumeDocs.Put(ctx, d.conn, s)
	return err
}

// NamedVolume returns a tenant's volume by its name, including one that was deleted lately.
func (v *View) NamedVolume(tenant, name string) (sandbox.Volume, bool) {
	return v.volumes.Get(volumeSubject(tenant, name))
}

// Volume returns a volume by its id, including one that was deleted lately.
func (v *View) Volume(id sandbox.VolumeID) (sandbox.Volume, bool) {
	v.progress.Lock()
	defer v.progress.Unlock()
	for _, s := range v.volumes.Docs {
		if s.ID == id {
			return s, true
		}
	}
	return sandbox.Volume{}, false
}

// Volumes returns the volumes for which keep is true, by tenant and name.
func (v *View) Volumes(keep func(*sandbox.Volume) bool) []sandbox.Volume { return v.volumes.List(keep) }

// AwaitVolume waits until done accepts a tenant's volume of that name or ctx ends, and
// returns the volume at that moment.
func (v *View) AwaitVolume(ctx context.Context, tenant, name string, done func(*sandbox.Volume) bool) (sandbox.Volume, error) {
	return v.volumes.Await(ctx, volumeSubject(tenant, name), done)
}
