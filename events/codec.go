package events

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// This file encodes and decodes everything but a process's output, with the generated
// types, because none of it is on a hot path.

const sandboxVersion = 1

// nanos returns t in Unix nanoseconds, 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func encodeSandbox(tenant string, id sandbox.ID, firstSeq uint64, now time.Time, bodies []sandbox.Body) ([]byte, error) {
	b := &pb.SandboxBatch{V: sandboxVersion, Sandbox: string(id), Tenant: tenant, FirstSeq: firstSeq}
	for _, body := range bodies {
		b.Frames = append(b.Frames, sandboxFrame(now, body))
	}
	return proto.Marshal(b)
}

func sandboxFrame(now time.Time, body sandbox.Body) *pb.SandboxFrame {
	f := &pb.SandboxFrame{TimeNs: nanos(now)}
	switch b := body.(type) {
	case sandbox.Requested:
		f.Body = &pb.SandboxFrame_Requested{Requested: &pb.SandboxRequested{
			Template: b.Template, Driver: b.Driver, Metadata: b.Metadata, Env: b.Env, LifetimeNs: int64(b.Lifetime),
			PlaceByNs: nanos(b.PlaceBy), RunByNs: nanos(b.RunBy), RequestHash: b.RequestHash,
			Secure: b.Secure, AllowInternet: b.AllowInternet, CpuMilli: b.CPUMilli, MemoryMib: b.MemoryMiB,
			DiskMib: b.DiskMiB, OnTimeout: b.OnTimeout, AutoResume: b.AutoResume, Alias: b.Alias, Pids: b.PIDs,
			Isolation: string(b.Isolation), Snapshot: string(b.From), ForkedFrom: string(b.FromSandbox), SnapshotHost: b.FromHost,
			Network: networkToPB(&b.Network), Volumes: mountsToPB(b.Volumes), VolumeHost: b.VolumeHost,
			Built: b.Built, Build: b.Build, User: b.User, Workdir: b.Workdir,
			Start: b.Start, Ready: b.Ready, Identity: identityToPB(&b.Identity), Demanded: fromLimits(b.Demanded),
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
		f.Body = &pb.SandboxFrame_DeadlineSet{DeadlineSet: &pb.SandboxDeadlineSet{DeadlineNs: nanos(b.Deadline)}}
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

// decodeSandbox decodes a message of a sandbox's record. It skips events of an unknown
// kind.
func decodeSandbox(data []byte) (tenant string, id sandbox.ID, events []sandbox.Event, err error) {
	var b pb.SandboxBatch
	if err := proto.Unmarshal(data, &b); err != nil {
		return "", "", nil, err
	}
	if id, err = sandbox.ParseID(b.Sandbox); err != nil {
		return "", "", nil, err
	}
	for i, f := range b.Frames {
		if body := sandboxBody(f); body != nil {
			events = append(events, sandbox.Event{Seq: b.FirstSeq + uint64(i), Time: fromNanos(f.TimeNs), Body: body})
		}
	}
	return b.Tenant, id, events, nil
}

func sandboxBody(f *pb.SandboxFrame) sandbox.Body {
	switch b := f.Body.(type) {
	case *pb.SandboxFrame_Requested:
		r := b.Requested
		return sandbox.Requested{
			Template: r.Template, Driver: r.Driver, Metadata: r.Metadata, Env: r.Env, Lifetime: time.Duration(r.LifetimeNs),
			PlaceBy: fromNanos(r.PlaceByNs), RunBy: fromNanos(r.RunByNs), RequestHash: r.RequestHash,
			Secure: r.Secure, AllowInternet: r.AllowInternet, CPUMilli: r.CpuMilli, MemoryMiB: r.MemoryMib,
			DiskMiB: r.DiskMib, OnTimeout: r.OnTimeout, AutoResume: r.AutoResume, Alias: r.Alias, PIDs: r.Pids,
			Isolation: sandbox.Isolation(r.Isolation), From: sandbox.SnapshotID(r.Snapshot), FromSandbox: sandbox.ID(r.ForkedFrom), FromHost: r.SnapshotHost,
			Network: networkFromPB(r.Network), Volumes: mountsFromPB(r.Volumes), VolumeHost: r.VolumeHost,
			Built: r.Built, Build: r.Build, User: r.User, Workdir: r.Workdir,
			Start: r.Start, Ready: r.Ready, Identity: identityFromPB(r.Identity), Demanded: toLimits(r.Demanded),
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
		return sandbox.DeadlineSet{Deadline: fromNanos(b.DeadlineSet.DeadlineNs)}
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

func specToPB(s *process.Spec) *pb.Spec {
	out := &pb.Spec{
		Cmd: s.Cmd, Args: s.Args, Env: s.Env, Cwd: s.Cwd, User: s.User,
		Stdin: s.Stdin, Tag: s.Tag, TimeoutNs: int64(s.Timeout), Helper: s.Helper,
	}
	if s.PTY != nil {
		out.Pty = &pb.Size{Cols: s.PTY.Cols, Rows: s.PTY.Rows}
	}
	return out
}

func specFromPB(s *pb.Spec) process.Spec {
	if s == nil {
		return process.Spec{}
	}
	out := process.Spec{
		Cmd: s.Cmd, Args: s.Args, Env: s.Env, Cwd: s.Cwd, User: s.User,
		Stdin: s.Stdin, Tag: s.Tag, Timeout: time.Duration(s.TimeoutNs), Helper: s.Helper,
	}
	if s.Pty != nil {
		out.PTY = &process.Size{Cols: s.Pty.Cols, Rows: s.Pty.Rows}
	}
	return out
}

func encodeSummary(s *process.Summary) ([]byte, error) {
	spec := s.Spec
	if !s.Active() {
		spec = spec.Public()
	}
	out := &pb.Summary{
		Process: s.ID.Token(), Sandbox: string(s.ID.Sandbox()), Tenant: s.Tenant, Host: s.Host, Epoch: s.Epoch,
		Spec: specToPB(&spec), Pid: s.PID, StartedNs: nanos(s.Started), EndedNs: nanos(s.Ended),
		Started: !s.Started.IsZero(), Killed: s.Killed, LastSeq: s.Last,
	}
	if x := s.Exit; x != nil {
		out.Exit = &pb.Exit{Code: x.Code, Signal: x.Signal, Cause: string(x.Cause), Message: x.Message}
	}
	return proto.Marshal(out)
}

func decodeSummary(data []byte) (process.Summary, error) {
	var b pb.Summary
	if err := proto.Unmarshal(data, &b); err != nil {
		return process.Summary{}, err
	}
	id, err := process.ParseID(b.Process + "-" + b.Sandbox)
	if err != nil {
		return process.Summary{}, err
	}
	s := process.Summary{
		ID: id, Tenant: b.Tenant, Host: b.Host, Epoch: b.Epoch, Spec: specFromPB(b.Spec), PID: b.Pid,
		Started: fromNanos(b.StartedNs), Ended: fromNanos(b.EndedNs), Killed: b.Killed, Last: b.LastSeq,
	}
	if x := b.Exit; x != nil {
		s.Exit = &process.Exit{Code: x.Code, Signal: x.Signal, Cause: process.Cause(x.Cause), Message: x.Message}
	}
	return s, nil
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

func encodeLease(l *fleet.Lease) ([]byte, error) {
	return proto.Marshal(&pb.Lease{
		Host: l.Host, Epoch: l.Epoch, TtlNs: int64(l.TTL), Drivers: l.Drivers, Capacity: l.Capacity,
		Sandboxes: l.Sandboxes, Processes: l.Processes, Load1: l.Load1, MemoryTotal: l.MemoryTotal, DiskTotal: l.DiskTotal,
		MemoryFree: l.MemoryFree, Draining: l.Draining, Starting: l.Starting, Gone: l.Gone, Version: l.Version, Cpus: l.CPUs, Instance: l.Instance,
		Isolations: l.Isolations, Templates: l.Templates, VolumeDrivers: l.VolumeDrivers, Fits: l.Fits, FileFits: l.FileFits, System: l.System, Cpu: l.CPU, Enforced: l.Enforced,
	})
}

func decodeLease(data []byte) (fleet.Lease, error) {
	var b pb.Lease
	if err := proto.Unmarshal(data, &b); err != nil {
		return fleet.Lease{}, err
	}
	return fleet.Lease{
		Host: b.Host, Epoch: b.Epoch, TTL: time.Duration(b.TtlNs), Drivers: b.Drivers, Capacity: b.Capacity,
		Sandboxes: b.Sandboxes, Processes: b.Processes, Load1: b.Load1, MemoryTotal: b.MemoryTotal, DiskTotal: b.DiskTotal,
		MemoryFree: b.MemoryFree, Draining: b.Draining, Starting: b.Starting, Gone: b.Gone, Version: b.Version, CPUs: b.Cpus, Instance: b.Instance,
		Isolations: b.Isolations, Templates: b.Templates, VolumeDrivers: b.VolumeDrivers, Fits: b.Fits, FileFits: b.FileFits, System: b.System, CPU: b.Cpu, Enforced: b.Enforced,
	}, nil
}

func encodeCommand(c *Command) ([]byte, error) {
	out := &pb.Command{
		Id: c.ID, Tenant: c.Tenant, DeadlineNs: nanos(c.Deadline), Reply: c.reply,
	}
	if c.Process != "" {
		out.Sandbox, out.Process = string(c.Process.Sandbox()), c.Process.Token()
	}
	switch b := c.Body.(type) {
	case Start:
		out.Body = &pb.Command_Start{Start: &pb.StartProcess{Spec: specToPB(&b.Spec)}}
	case Stdin:
		out.Body = &pb.Command_Stdin{Stdin: &pb.SendStdin{Data: b.Data, Eof: b.EOF}}
	case Signal:
		out.Body = &pb.Command_Signal{Signal: &pb.SendSignal{Signal: b.Signal}}
	case Resize:
		out.Body = &pb.Command_Resize{Resize: &pb.ResizePTY{Cols: b.Size.Cols, Rows: b.Size.Rows}}
	case TakeSnapshot:
		out.Body = &pb.Command_TakeSnapshot{TakeSnapshot: &pb.TakeSnapshot{Id: string(b.ID), Memory: b.Memory, Name: b.Name, Internal: b.Internal, Layer: b.Layer}}
	case Drain:
		out.Body = &pb.Command_DrainHost{DrainHost: &pb.DrainHost{Drain: b.Drain}}
	}
	return proto.Marshal(out)
}

func decodeCommand(m stored) (Command, error) {
	var b pb.Command
	if err := proto.Unmarshal(m.data, &b); err != nil {
		return Command{}, err
	}
	if d, ok := b.Body.(*pb.Command_DrainHost); ok {
		return Command{ID: b.Id, Deadline: fromNanos(b.DeadlineNs), Rev: m.seq, reply: b.Reply, Body: Drain{Drain: d.DrainHost.Drain}}, nil
	}
	id, err := process.ParseID(b.Process + "-" + b.Sandbox)
	if err != nil {
		return Command{}, err
	}
	c := Command{ID: b.Id, Tenant: b.Tenant, Process: id, Deadline: fromNanos(b.DeadlineNs), Rev: m.seq, reply: b.Reply}
	switch v := b.Body.(type) {
	case *pb.Command_Start:
		c.Body = Start{Spec: specFromPB(v.Start.Spec)}
	case *pb.Command_Stdin:
		c.Body = Stdin{Data: v.Stdin.Data, EOF: v.Stdin.Eof}
	case *pb.Command_Signal:
		c.Body = Signal{Signal: v.Signal.Signal}
	case *pb.Command_Resize:
		c.Body = Resize{Size: process.Size{Cols: v.Resize.Cols, Rows: v.Resize.Rows}}
	case *pb.Command_TakeSnapshot:
		sid, err := sandbox.ParseSnapshotID(v.TakeSnapshot.Id)
		if err != nil {
			return Command{}, err
		}
		c.Body = TakeSnapshot{ID: sid, Memory: v.TakeSnapshot.Memory, Name: v.TakeSnapshot.Name, Internal: v.TakeSnapshot.Internal, Layer: v.TakeSnapshot.Layer}
	default:
		return Command{}, kind.New(kind.Unimplemented, "command", b.Id, "the command is of a newer version")
	}
	return c, nil
}

func encodeReply(r *Reply) ([]byte, error) {
	out := &pb.Reply{Command: r.Command, Offset: r.Offset}
	if r.Err != nil {
		out.Kind, out.Error = uint32(kind.Of(r.Err)), kind.Message(r.Err)
	}
	return proto.Marshal(out)
}

func decodeReply(data []byte) (Reply, error) {
	var b pb.Reply
	if err := proto.Unmarshal(data, &b); err != nil {
		return Reply{}, err
	}
	r := Reply{Command: b.Command, Offset: b.Offset}
	if b.Error != "" {
		r.Err = kind.New(kind.Kind(b.Kind), "command", b.Command, b.Error)
	}
	return r, nil
}
