package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

const sandboxVersion = 1

// EncodeSandbox encodes events as a message of a sandbox's record.
func EncodeSandbox(tenant string, id sandbox.ID, firstSeq uint64, now time.Time, bodies []sandbox.Body) ([]byte, error) {
	b := &pb.SandboxBatch{V: sandboxVersion, Sandbox: string(id), Tenant: tenant, FirstSeq: firstSeq}
	for _, body := range bodies {
		b.Frames = append(b.Frames, sandboxFrame(now, body))
	}
	return proto.Marshal(b)
}

func sandboxFrame(now time.Time, body sandbox.Body) *pb.SandboxFrame {
	f := &pb.SandboxFrame{TimeNs: Nanos(now)}
	switch b := body.(type) {
	case sandbox.Requested:
		f.Body = &pb.SandboxFrame_Requested{Requested: &pb.SandboxRequested{
			Template: b.Template, Driver: b.Driver, Metadata: b.Metadata, SealedEnv: []byte(b.Sealed), LifetimeNs: int64(b.Lifetime),
			PlaceByNs: Nanos(b.PlaceBy), RunByNs: Nanos(b.RunBy), RequestHash: b.RequestHash,
			Secure: b.Secure, AllowInternet: b.AllowInternet, CpuMilli: b.CPUMilli, MemoryMib: b.MemoryMiB,
			DiskMib: b.DiskMiB, OnTimeout: b.OnTimeout, AutoResume: b.AutoResume, Alias: b.Alias, Pids: b.PIDs,
			Isolation: string(b.Isolation), Snapshot: string(b.From), ForkedFrom: string(b.FromSandbox), SnapshotHost: b.FromHost,
			Network: networkToPB(&b.Network), Volumes: mountsToPB(b.Volumes), VolumeHost: b.VolumeHost,
			Built: b.Built, Build: b.Build, User: b.User, Workdir: b.Workdir,
			Start: b.Start, Ready: b.Ready, Identity: identityToPB(&b.Identity), Demanded: fromLimits(b.Demanded),
			HardEndNs: Nanos(b.HardEnd), WarningNs: int64(b.Warning), IdleNs: int64(b.Idle), JsonMetadata: b.JSON,
			E2A: e2aToPB(&b.E2A), Record: uint32(b.Record), SealedRedact: []byte(b.Recording.Hidden),
		}}
	case sandbox.Placed:
		f.Body = &pb.SandboxFrame_Placed{Placed: &pb.SandboxPlaced{Host: b.Host, Epoch: b.Epoch, Driver: b.Driver}}
	case sandbox.Queued:
		f.Body = &pb.SandboxFrame_Queued{Queued: &pb.SandboxQueued{Reason: b.Reason}}
	case sandbox.Refused:
		f.Body = &pb.SandboxFrame_Refused{Refused: &pb.SandboxRefused{Kind: b.Kind, Reason: b.Reason}}
	case sandbox.Running:
		f.Body = &pb.SandboxFrame_Running{Running: &pb.SandboxRunning{
			Driver: b.Driver, Isolation: string(b.Isolation),
			CanPause: b.Can.Pause, CanSnapshot: b.Can.Files, CanSnapshotMemory: b.Can.Memory,
			CpuMilli: b.CPUMilli, MemoryMib: b.MemoryMiB, Unenforced: fromLimits(b.Unenforced),
		}}
	case sandbox.DeadlineSet:
		f.Body = &pb.SandboxFrame_DeadlineSet{DeadlineSet: &pb.SandboxDeadlineSet{DeadlineNs: Nanos(b.Deadline)}}
	case sandbox.Pausing:
		f.Body = &pb.SandboxFrame_Pausing{Pausing: &pb.SandboxPausing{Cause: b.Cause, Files: b.Files}}
	case sandbox.Paused:
		f.Body = &pb.SandboxFrame_Paused{Paused: &pb.SandboxPaused{Message: b.Message}}
	case sandbox.Resuming:
		f.Body = &pb.SandboxFrame_Resuming{Resuming: &pb.SandboxResuming{Cause: b.Cause, OnTimeout: b.OnTimeout, Reboot: b.Reboot, LifetimeNs: int64(b.Lifetime)}}
	case sandbox.Resumed:
		f.Body = &pb.SandboxFrame_Resumed{Resumed: &pb.SandboxResumed{Message: b.Message}}
	case sandbox.Snapshotted:
		f.Body = &pb.SandboxFrame_Snapshotted{Snapshotted: &pb.SandboxSnapshotted{Snapshot: string(b.Snapshot), Memory: b.Memory}}
	case sandbox.NetworkSet:
		f.Body = &pb.SandboxFrame_NetworkSet{NetworkSet: &pb.SandboxNetworkSet{Network: networkToPB(&b.Network)}}
	case sandbox.NetworkUsed:
		f.Body = &pb.SandboxFrame_NetworkUsed{NetworkUsed: &pb.SandboxNetworkUsed{
			Sent: b.Sent, Received: b.Received, Link: b.Link.Index, LinkSent: b.Link.Sent, LinkReceived: b.Link.Received,
		}}
	case sandbox.Warned:
		f.Body = &pb.SandboxFrame_Warned{Warned: &pb.SandboxWarned{HardEndNs: Nanos(b.HardEnd)}}
	case sandbox.Mounted:
		f.Body = &pb.SandboxFrame_Mounted{Mounted: &pb.SandboxMounted{Gateway: b.Gateway}}
	case sandbox.Unmounted:
		f.Body = &pb.SandboxFrame_Unmounted{Unmounted: &pb.SandboxUnmounted{Unstored: b.Unstored, Count: b.Count, StoredNs: Nanos(b.Stored)}}
	case sandbox.Stopping:
		f.Body = &pb.SandboxFrame_Stopping{Stopping: &pb.SandboxStopping{Cause: b.Cause}}
	case sandbox.Destroyed:
		f.Body = &pb.SandboxFrame_Destroyed{Destroyed: &pb.SandboxDestroyed{Cause: b.Cause}}
	case sandbox.Lost:
		f.Body = &pb.SandboxFrame_Lost{Lost: &pb.SandboxLost{Reason: b.Reason}}
	case sandbox.Failed:
		f.Body = &pb.SandboxFrame_Failed{Failed: &pb.SandboxFailed{Message: b.Message}}
	}
	return f
}

func mountsToPB(mounts []sandbox.Mount) []*pb.VolumeMount {
	var out []*pb.VolumeMount
	for _, m := range mounts {
		out = append(out, &pb.VolumeMount{Volume: string(m.Volume), Name: m.Name, Path: m.Path})
	}
	return out
}

func mountsFromPB(mounts []*pb.VolumeMount) []sandbox.Mount {
	var out []sandbox.Mount
	for _, m := range mounts {
		out = append(out, sandbox.Mount{Volume: sandbox.VolumeID(m.GetVolume()), Name: m.GetName(), Path: m.GetPath()})
	}
	return out
}

// DecodeSandbox decodes a message of a sandbox's record. It skips events of an unknown
// kind.
func DecodeSandbox(data []byte) (tenant string, id sandbox.ID, events []sandbox.Event, err error) {
	var b pb.SandboxBatch
	if err := proto.Unmarshal(data, &b); err != nil {
		return "", "", nil, err
	}
	if b.V != sandboxVersion {
		return "", "", nil, kind.Newf(kind.Unimplemented, "parse sandbox", b.Sandbox, "a message of version %d, want %d", b.V, sandboxVersion)
	}
	if id, err = sandbox.ParseID(b.Sandbox); err != nil {
		return "", "", nil, err
	}
	for i, f := range b.Frames {
		if body := sandboxBody(f); body != nil {
			events = append(events, sandbox.Event{Seq: b.FirstSeq + uint64(i), Time: Time(f.TimeNs), Body: body})
		}
	}
	return b.Tenant, id, events, nil
}

func sandboxBody(f *pb.SandboxFrame) sandbox.Body {
	switch b := f.Body.(type) {
	case *pb.SandboxFrame_Requested:
		r := b.Requested
		return sandbox.Requested{
			Template: r.Template, Driver: r.Driver, Metadata: r.Metadata, JSON: r.JsonMetadata, Defaults: sandbox.Defaults{Env: r.Env, Sealed: seal.Text(r.SealedEnv), User: r.User, Workdir: r.Workdir, Start: r.Start, Ready: r.Ready},
			Schedule: sandbox.Schedule{
				Lifetime: time.Duration(r.LifetimeNs), Idle: time.Duration(r.IdleNs), PlaceBy: Time(r.PlaceByNs), RunBy: Time(r.RunByNs),
				HardEnd: Time(r.HardEndNs), Warning: time.Duration(r.WarningNs),
			},
			RequestHash: r.RequestHash, Secure: r.Secure, AllowInternet: r.AllowInternet, Resources: sandbox.Resources{CPUMilli: r.CpuMilli, MemoryMiB: r.MemoryMib, DiskMiB: r.DiskMib, PIDs: r.Pids}, OnTimeout: r.OnTimeout, AutoResume: r.AutoResume, Alias: r.Alias,
			Isolation: sandbox.Isolation(r.Isolation), Origin: sandbox.Origin{From: sandbox.SnapshotID(r.Snapshot), FromSandbox: sandbox.ID(r.ForkedFrom), FromHost: r.SnapshotHost},
			Network: networkFromPB(r.Network), Volumes: mountsFromPB(r.Volumes), VolumeHost: r.VolumeHost,
			Built: r.Built, Build: r.Build, Identity: identityFromPB(r.Identity), Demanded: toLimits(r.Demanded),
			E2A: e2aFromPB(r.E2A), Recording: sandbox.Recording{Record: sandbox.Policy(min(r.Record, uint32(sandbox.RecordNone))), Hidden: seal.Text(r.SealedRedact)},
		}
	case *pb.SandboxFrame_Placed:
		return sandbox.Placed{Host: b.Placed.Host, Epoch: b.Placed.Epoch, Driver: b.Placed.Driver}
	case *pb.SandboxFrame_Queued:
		return sandbox.Queued{Reason: b.Queued.Reason}
	case *pb.SandboxFrame_Refused:
		return sandbox.Refused{Kind: b.Refused.Kind, Reason: b.Refused.Reason}
	case *pb.SandboxFrame_Running:
		r := b.Running
		return sandbox.Running{Driver: r.Driver, Isolation: sandbox.Isolation(r.Isolation), Can: sandbox.Abilities{
			Pause: r.CanPause, Files: r.CanSnapshot, Memory: r.CanSnapshotMemory,
		}, CPUMilli: r.CpuMilli, MemoryMiB: r.MemoryMib, Unenforced: toLimits(r.Unenforced)}
	case *pb.SandboxFrame_DeadlineSet:
		return sandbox.DeadlineSet{Deadline: Time(b.DeadlineSet.DeadlineNs)}
	case *pb.SandboxFrame_Pausing:
		return sandbox.Pausing{Cause: b.Pausing.Cause, Files: b.Pausing.Files}
	case *pb.SandboxFrame_Paused:
		return sandbox.Paused{Message: b.Paused.Message}
	case *pb.SandboxFrame_Resuming:
		return sandbox.Resuming{Cause: b.Resuming.Cause, OnTimeout: b.Resuming.OnTimeout, Reboot: b.Resuming.Reboot, Lifetime: time.Duration(b.Resuming.LifetimeNs)}
	case *pb.SandboxFrame_Resumed:
		return sandbox.Resumed{Message: b.Resumed.Message}
	case *pb.SandboxFrame_Snapshotted:
		return sandbox.Snapshotted{Snapshot: sandbox.SnapshotID(b.Snapshotted.Snapshot), Memory: b.Snapshotted.Memory}
	case *pb.SandboxFrame_NetworkSet:
		return sandbox.NetworkSet{Network: networkFromPB(b.NetworkSet.Network)}
	case *pb.SandboxFrame_NetworkUsed:
		u := b.NetworkUsed
		return sandbox.NetworkUsed{Sent: u.Sent, Received: u.Received, Link: sandbox.LinkUsed{Index: u.Link, Sent: u.LinkSent, Received: u.LinkReceived}}
	case *pb.SandboxFrame_Warned:
		return sandbox.Warned{HardEnd: Time(b.Warned.HardEndNs)}
	case *pb.SandboxFrame_Mounted:
		return sandbox.Mounted{Gateway: b.Mounted.Gateway}
	case *pb.SandboxFrame_Unmounted:
		return sandbox.Unmounted{Unstored: b.Unmounted.Unstored, Count: b.Unmounted.Count, Stored: Time(b.Unmounted.StoredNs)}
	case *pb.SandboxFrame_Stopping:
		return sandbox.Stopping{Cause: b.Stopping.Cause}
	case *pb.SandboxFrame_Destroyed:
		return sandbox.Destroyed{Cause: b.Destroyed.Cause}
	case *pb.SandboxFrame_Lost:
		return sandbox.Lost{Reason: b.Lost.Reason}
	case *pb.SandboxFrame_Failed:
		return sandbox.Failed{Message: b.Failed.Message}
	}
	return nil
}

func fromLimits(limits []sandbox.Limit) []string {
	var all []string
	for _, l := range limits {
		all = append(all, string(l))
	}
	return all
}

func toLimits(names []string) []sandbox.Limit {
	var all []sandbox.Limit
	for _, n := range names {
		all = append(all, sandbox.Limit(n))
	}
	return all
}

func identityToPB(i *sandbox.Identity) *pb.SandboxIdentity {
	if len(i.Tokens) == 0 {
		return nil
	}
	out := &pb.SandboxIdentity{Issuer: i.Issuer}
	for _, t := range i.Tokens {
		out.Tokens = append(out.Tokens, &pb.SandboxToken{Name: t.Name, Audience: t.Audience, Type: t.Type})
	}
	return out
}

func identityFromPB(i *pb.SandboxIdentity) sandbox.Identity {
	out := sandbox.Identity{Issuer: i.GetIssuer()}
	for _, t := range i.GetTokens() {
		out.Tokens = append(out.Tokens, sandbox.Token{Name: t.GetName(), Audience: t.GetAudience(), Type: t.GetType()})
	}
	return out
}
