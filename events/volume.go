package events

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// The subject has the name, not the id, so that names are unique.
func volumeSubject(tenant, name string) string { return "vol." + tenant + "." + name }

// NewVolume stores a new volume, ignoring its Rev. It returns Conflict if the tenant has a
// volume of that name, perhaps one that was deleted and is being removed.
func (l *Log) NewVolume(ctx context.Context, s *sandbox.Volume) error {
	data, err := encodeVolume(s)
	if err != nil {
		return kind.Wrap(kind.Internal, "new volume", string(s.ID), err)
	}
	return l.putNew(ctx, streamVolumes, volumeSubject(s.Tenant, s.Name), data, func(m stored) bool {
		was, err := decodeVolume(m)
		return err == nil && was.Over()
	})
}

// PutVolume replaces the description of a volume with stream sequence s.Rev. It returns
// Conflict as in AppendSandbox.
func (l *Log) PutVolume(ctx context.Context, s *sandbox.Volume) error {
	data, err := encodeVolume(s)
	if err != nil {
		return kind.Wrap(kind.Internal, "put volume", string(s.ID), err)
	}
	_, err = l.put(ctx, streamVolumes, volumeSubject(s.Tenant, s.Name), s.Rev, data)
	return err
}

func encodeVolume(s *sandbox.Volume) ([]byte, error) {
	return proto.Marshal(&pb.Volume{
		Id: string(s.ID), Tenant: s.Tenant, Name: s.Name, Host: s.Host,
		CreatedNs: codec.Nanos(s.Created), Made: s.Made, Deleted: s.Deleted,
	})
}

func decodeVolume(m stored) (sandbox.Volume, error) {
	var b pb.Volume
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return sandbox.Volume{}, err
	}
	id, err := sandbox.ParseVolumeID(b.Id)
	return sandbox.Volume{
		ID: id, Tenant: b.Tenant, Name: b.Name, Host: b.Host,
		Created: codec.Time(b.CreatedNs), Made: b.Made, Deleted: b.Deleted, Rev: m.seq, Changed: m.time,
	}, err
}

func (v *View) applyVolume(m stored) error {
	s, err := decodeVolume(m)
	if err == nil {
		v.volumes[m.subject] = s
	}
	return err
}

// NamedVolume returns a tenant's volume by its name, including one that was deleted lately.
func (v *View) NamedVolume(tenant, name string) (sandbox.Volume, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.volumes[volumeSubject(tenant, name)]
	return s, ok
}

// Volume returns a volume by its id, including one that was deleted lately.
func (v *View) Volume(id sandbox.VolumeID) (sandbox.Volume, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.volumes {
		if s.ID == id {
			return s, true
		}
	}
	return sandbox.Volume{}, false
}

// Volumes returns the volumes for which keep is true, by tenant and name.
func (v *View) Volumes(keep func(*sandbox.Volume) bool) []sandbox.Volume {
	v.mu.Lock()
	var out []sandbox.Volume
	for _, s := range v.volumes {
		if keep(&s) {
			out = append(out, s)
		}
	}
	v.mu.Unlock()
	slices.SortFunc(out, func(a, b sandbox.Volume) int {
		return strings.Compare(volumeSubject(a.Tenant, a.Name), volumeSubject(b.Tenant, b.Name))
	})
	return out
}

// AwaitVolume waits until done accepts a tenant's volume of that name or ctx ends, and
// returns the volume at that moment.
func (v *View) AwaitVolume(ctx context.Context, tenant, name string, done func(*sandbox.Volume) bool) (sandbox.Volume, error) {
	var s sandbox.Volume
	err := v.wait(ctx, func() bool {
		s = v.volumes[volumeSubject(tenant, name)]
		return done(&s)
	})
	return s, err
}
