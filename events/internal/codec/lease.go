package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// EncodeLease encodes a host's lease.
func EncodeLease(l *fleet.Lease) proto.Message {
	return &pb.Lease{
		Host: l.Host, Epoch: l.Epoch, TtlNs: int64(l.TTL), Drivers: l.Drivers, Capacity: l.Capacity,
		Sandboxes: l.Sandboxes, Processes: l.Processes, Load1: l.Load1, MemoryTotal: l.MemoryTotal, DiskTotal: l.DiskTotal,
		MemoryFree: l.MemoryFree, Draining: l.Draining, Starting: l.Starting, Gone: l.Gone, Version: l.Version, Cpus: l.CPUs, Instance: l.Instance,
		Isolations: l.Isolations, Templates: l.Templates, VolumeDrivers: l.VolumeDrivers, Fits: l.Fits, FileFits: l.FileFits, System: l.System, Cpu: l.CPU, Enforced: l.Enforced,
		Checkpoint: encodeCheckpoint(&l.Checkpoint),
	}
}

// DecodeLease reverses [EncodeLease].
func DecodeLease(data []byte) (fleet.Lease, error) {
	var b pb.Lease
	if err := proto.Unmarshal(data, &b); err != nil {
		return fleet.Lease{}, err
	}
	return fleet.Lease{
		Host: b.Host, Epoch: b.Epoch, TTL: time.Duration(b.TtlNs), Drivers: b.Drivers, Capacity: b.Capacity,
		Sandboxes: b.Sandboxes, Processes: b.Processes,
		Machine:  fleet.Machine{CPUs: b.Cpus, Load1: b.Load1, MemoryTotal: b.MemoryTotal, MemoryFree: b.MemoryFree, DiskTotal: b.DiskTotal},
		Draining: b.Draining, Starting: b.Starting, Gone: b.Gone, Version: b.Version, Checkpoint: decodeCheckpoint(b.Checkpoint), Instance: b.Instance,
		Isolations: b.Isolations, Templates: b.Templates, VolumeDrivers: b.VolumeDrivers, Fits: b.Fits, FileFits: b.FileFits, System: b.System, CPU: b.Cpu, Enforced: b.Enforced,
	}, nil
}

func encodeCheckpoint(c *fleet.Checkpoint) *pb.Checkpoint {
	if *c == (fleet.Checkpoint{}) {
		return nil
	}
	return &pb.Checkpoint{Seq: c.Seq, StoredNs: c.Stored.UnixNano(), AtNs: c.At.UnixNano(), Missing: c.Missing, Rev: c.Rev}
}

func decodeCheckpoint(b *pb.Checkpoint) fleet.Checkpoint {
	if b == nil {
		return fleet.Checkpoint{}
	}
	return fleet.Checkpoint{Seq: b.Seq, Stored: time.Unix(0, b.StoredNs), At: time.Unix(0, b.AtNs), Missing: b.Missing, Rev: b.Rev}
}
