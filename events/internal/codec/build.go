package codec

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/seal"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// BuildFrame encodes an event of a build's record.
func BuildFrame(now time.Time, body build.Body) *pb.BuildFrame {
	f := &pb.BuildFrame{TimeNs: Nanos(now)}
	switch b := body.(type) {
	case build.Requested:
		f.Body = &pb.BuildFrame_Requested{Requested: &pb.BuildRequested{
			Template: b.Template, Name: b.Name, Tags: b.Tags, CpuMilli: b.CPUMilli, MemoryMib: b.MemoryMiB,
		}}
	case build.Started:
		s := &pb.BuildStarted{
			Image: b.Spec.Image, Template: b.Spec.Template, Credentials: b.Spec.Credentials,
			Start: b.Spec.Start, Ready: b.Spec.Ready, Force: b.Spec.Force,
		}
		for _, step := range b.Spec.Steps {
			s.Steps = append(s.Steps, encodeStep(&step))
		}
		f.Body = &pb.BuildFrame_Started{Started: s}
	case build.Claimed:
		f.Body = &pb.BuildFrame_Held{Held: &pb.BuildHeld{By: b.By}}
	case build.Based:
		f.Body = &pb.BuildFrame_Based{Based: &pb.BuildBased{
			Template: b.Template, Snapshot: b.Snapshot, Sum: b.Sum,
			SealedEnv: []byte(b.Sealed), User: b.User, Workdir: b.Workdir, Start: b.Start, Ready: b.Ready,
		}}
	case build.Logged:
		m := &pb.BuildLogged{Step: b.Mark.Step, After: b.Mark.After, HalfOut: b.Mark.PartialOut, HalfErr: b.Mark.PartialErr, Layers: b.Mark.Layers}
		for _, line := range b.Lines {
			m.Lines = append(m.Lines, &pb.BuildLine{TimeNs: Nanos(line.Time), Level: uint32(line.Level), Text: line.Text})
		}
		f.Body = &pb.BuildFrame_Logged{Logged: m}
	case build.Finished:
		f.Body = &pb.BuildFrame_Finished{Finished: &pb.BuildFinished{}}
	case build.Failed:
		f.Body = &pb.BuildFrame_Failed{Failed: &pb.BuildFailed{Step: b.Step, Message: b.Message}}
	case build.Deleted:
		f.Body = &pb.BuildFrame_Deleted{Deleted: &pb.BuildDeleted{}}
	}
	return f
}

// encodeStep encodes a step. The arguments of ENV must be sealed: open ones are left out.
func encodeStep(s *build.Step) *pb.BuildStep {
	out := &pb.BuildStep{Type: s.Type, Args: s.Args, SealedArgs: []byte(s.Sealed), Files: s.Files, Force: s.Force}
	if s.Type == build.Env {
		out.Args = nil
	}
	return out
}

func buildBody(f *pb.BuildFrame) build.Body {
	switch b := f.Body.(type) {
	case *pb.BuildFrame_Requested:
		r := b.Requested
		return build.Requested{Template: r.Template, Name: r.Name, Tags: r.Tags, CPUMilli: r.CpuMilli, MemoryMiB: r.MemoryMib}
	case *pb.BuildFrame_Started:
		s := build.Spec{
			Image: b.Started.Image, Template: b.Started.Template, Credentials: b.Started.Credentials,
			Start: b.Started.Start, Ready: b.Started.Ready, Force: b.Started.Force,
		}
		for _, step := range b.Started.Steps {
			s.Steps = append(s.Steps, build.Step{Type: step.Type, Args: step.Args, Sealed: seal.Text(step.SealedArgs), Files: step.Files, Force: step.Force})
		}
		return build.Started{Spec: s}
	case *pb.BuildFrame_Held:
		return build.Claimed{By: b.Held.By}
	case *pb.BuildFrame_Based:
		m := b.Based
		return build.Based{
			Template: m.Template, Snapshot: m.Snapshot, Sum: m.Sum,
			Env: m.Env, Sealed: seal.Text(m.SealedEnv), User: m.User, Workdir: m.Workdir, Start: m.Start, Ready: m.Ready,
		}
	case *pb.BuildFrame_Logged:
		m := b.Logged
		out := build.Logged{Mark: build.Mark{Step: m.Step, After: m.After, PartialOut: m.HalfOut, PartialErr: m.HalfErr, Layers: m.Layers}}
		for _, line := range m.Lines {
			out.Lines = append(out.Lines, build.Line{Time: Time(line.TimeNs), Level: build.Level(line.Level), Text: line.Text})
		}
		return out
	case *pb.BuildFrame_Finished:
		return build.Finished{}
	case *pb.BuildFrame_Failed:
		return build.Failed{Step: b.Failed.Step, Message: b.Failed.Message}
	case *pb.BuildFrame_Deleted:
		return build.Deleted{}
	}
	return nil
}

// DecodeBuild decodes a message of a build's record. It skips events of an unknown kind.
func DecodeBuild(data []byte) (tenant string, id build.ID, events []build.Event, err error) {
	var b pb.BuildBatch
	if err := proto.Unmarshal(data, &b); err != nil {
		return "", "", nil, err
	}
	if id, err = build.ParseID(b.Build); err != nil {
		return "", "", nil, err
	}
	for i, f := range b.Frames {
		if body := buildBody(f); body != nil {
			events = append(events, build.Event{Seq: b.FirstSeq + uint64(i), Time: Time(f.TimeNs), Body: body})
		}
	}
	return b.Tenant, id, events, nil
}
