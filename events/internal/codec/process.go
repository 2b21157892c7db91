package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// SpecToPB encodes what a process runs. Its environment must be sealed: an open one is left out.
func SpecToPB(s *process.Spec) *pb.Spec {
	out := &pb.Spec{
		Cmd: s.Cmd, Args: s.Args, SealedEnv: []byte(s.Sealed), Cwd: s.Cwd, User: s.User,
		Stdin: s.Stdin, Tag: s.Tag, TimeoutNs: int64(s.Timeout), Helper: s.Helper, Exact: s.Exact, Arg0: s.Arg0,
		Record: uint32(s.Record), SealedCommand: []byte(s.Hidden), UntilEof: s.UntilEOF,
	}
	if s.PTY != nil {
		out.Pty = &pb.Size{Cols: s.PTY.Cols, Rows: s.PTY.Rows}
	}
	if c := s.Confine; c != nil {
		out.Confine = &pb.Confinement{Read: c.Read, Write: c.Write, Deny: c.Deny, Network: c.Network, Optional: c.Optional}
	}
	if t := s.Trace; t != nil {
		out.Trace = &pb.Trace{Id: t.ID[:], Parent: t.Parent[:], Flags: uint32(t.Flags), State: t.State, Exported: t.Exported}
	}
	return out
}

// SpecFromPB reverses [SpecToPB].
func SpecFromPB(s *pb.Spec) process.Spec {
	if s == nil {
		return process.Spec{}
	}
	out := process.Spec{
		Cmd: s.Cmd, Args: s.Args, Env: s.Env, Sealed: seal.Text(s.SealedEnv), Cwd: s.Cwd, User: s.User,
		Stdin: s.Stdin, Tag: s.Tag, Timeout: time.Duration(s.TimeoutNs), Helper: s.Helper, Exact: s.Exact, Arg0: s.Arg0,
		Record: sandbox.Policy(min(s.Record, uint32(sandbox.RecordNone))), Hidden: seal.Text(s.SealedCommand), UntilEOF: s.UntilEof,
	}
	if s.Pty != nil {
		out.PTY = &process.Size{Cols: s.Pty.Cols, Rows: s.Pty.Rows}
	}
	if c := s.Confine; c != nil {
		out.Confine = &process.Confinement{Read: c.Read, Write: c.Write, Deny: c.Deny, Network: c.Network, Optional: c.Optional}
	}
	if t := s.Trace; t != nil { // one that is not valid counts as none
		out.Trace, _ = process.NewTrace(t.Id, t.Parent, uint64(t.Flags), t.State, t.Exported)
	}
	return out
}

// EncodeSummary encodes a process's entry in the catalog. That of an ended process has no
// secrets.
func EncodeSummary(s *process.Summary) ([]byte, error) {
	spec := s.Spec
	if !s.Active() {
		spec = spec.Public()
	}
	out := &pb.Summary{
		Process: s.ID.Token(), Sandbox: string(s.ID.Sandbox()), Tenant: s.Tenant, Host: s.Host, Epoch: s.Epoch,
		Spec: SpecToPB(&spec), Pid: s.PID, StartedNs: Nanos(s.Started), EndedNs: Nanos(s.Ended),
		Started: !s.Started.IsZero(), Killed: s.Killed, LastSeq: s.Last,
	}
	if x := s.Exit; x != nil {
		out.Exit = &pb.Exit{Code: x.Code, Signal: x.Signal, Cause: string(x.Cause), Message: x.Message}
	}
	return proto.Marshal(out)
}

// DecodeSummary reverses [EncodeSummary].
func DecodeSummary(data []byte) (process.Summary, error) {
	var b pb.Summary
	if err := proto.Unmarshal(data, &b); err != nil {
		return process.Summary{}, err
	}
	id, err := process.ParseID(b.Process + "-" + b.Sandbox)
	if err != nil {
		return process.Summary{}, err
	}
	s := process.Summary{
		ID: id, Tenant: b.Tenant, Host: b.Host, Epoch: b.Epoch, Spec: SpecFromPB(b.Spec), PID: b.Pid,
		Started: Time(b.StartedNs), Ended: Time(b.EndedNs), Killed: b.Killed, Last: b.LastSeq,
	}
	if x := b.Exit; x != nil {
		s.Exit = &process.Exit{Code: x.Code, Signal: x.Signal, Cause: process.Cause(x.Cause), Message: x.Message}
	}
	return s, nil
}
