package command

import (
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/event/v1"
)

func encodeCommand(c *Command) ([]byte, error) {
	out := &pb.Command{
		Id: c.ID, Tenant: c.Tenant, DeadlineNs: codec.Nanos(c.Deadline), Reply: c.reply,
	}
	if c.Process != "" {
		out.Sandbox, out.Process = string(c.Process.Sandbox()), c.Process.Token()
	}
	switch b := c.Body.(type) {
	case Start:
		out.Body = &pb.Command_Start{Start: &pb.StartProcess{Spec: codec.SpecToPB(&b.Spec)}}
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

func decodeCommand(m store.Message) (Command, error) {
	var b pb.Command
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return Command{}, err
	}
	if d, ok := b.Body.(*pb.Command_DrainHost); ok {
		return Command{ID: b.Id, Deadline: codec.Time(b.DeadlineNs), Rev: m.Seq, reply: b.Reply, Body: Drain{Drain: d.DrainHost.Drain}}, nil
	}
	id, err := process.ParseID(b.Process + "-" + b.Sandbox)
	if err != nil {
		return Command{}, err
	}
	c := Command{ID: b.Id, Tenant: b.Tenant, Process: id, Deadline: codec.Time(b.DeadlineNs), Rev: m.Seq, reply: b.Reply}
	switch v := b.Body.(type) {
	case *pb.Command_Start:
		c.Body = Start{Spec: codec.SpecFromPB(v.Start.Spec)}
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
		return Command{}, kind.New(kind.Unimplemented, "command", b.Id, "the command is unknown")
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
