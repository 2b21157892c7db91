package connect

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// stat serves Stat.
func (h *Handler) stat(ctx context.Context, r *call, req *pb.StatRequest) (proto.Message, error) {
	res := &pb.StatResponse{}
	entry, err := h.ask(ctx, r, events.Ask{Method: "stat", Path: req.GetPath(), User: r.user})
	res.Entry = entry
	return res, err
}

// write serves Write, which is not E2B's but the seed's (N-011): one small file.
func (h *Handler) write(ctx context.Context, r *call, req *pb.WriteRequest) (proto.Message, error) {
	res := &pb.WriteResponse{}
	if len(req.GetData()) > events.MaxAsk {
		return nil, fail(CodeInvalid, "%d bytes are more than one Write takes (%d): use POST /files", len(req.GetData()), events.MaxAsk)
	}
	entry, err := h.ask(ctx, r, events.Ask{Method: "write", Path: req.GetPath(), User: r.user, Data: req.GetData(), Mode: 0o644})
	res.Entry = entry
	return res, err
}

// ask puts a question whose answer is an EntryInfo, as protobuf, to the sandbox.
func (h *Handler) ask(ctx context.Context, r *call, ask events.Ask) (*pb.EntryInfo, error) {
	if ask.Path == "" {
		return nil, fail(CodeInvalid, "path is required")
	}
	if err := h.routed(r); err != nil {
		return nil, err
	}
	reply, err := h.core.Ask(ctx, r.who, r.sbx, ask)
	if err == nil {
		err = reply.Err
	}
	if err != nil {
		return nil, err
	}
	entry := &pb.EntryInfo{}
	if err := proto.Unmarshal(reply.Data, entry); err != nil {
		return nil, kind.Wrap(kind.Internal, "read answer", string(r.sbx), err)
	}
	return entry, nil
}
