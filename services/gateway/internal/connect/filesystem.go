package connect

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// fileHandler serves the part of the filesystem service that is not about watches.
type fileHandler struct {
	sandboxes Sandboxes
	files     Files
	streams   *stream.Streams
}

// maxListing is the maximum number of bytes of entries in one ListDir response.
const maxListing = 32 << 20

// stat serves Stat.
func (h *fileHandler) stat(ctx context.Context, r *call, req *pb.StatRequest) (proto.Message, error) {
	res := &pb.StatResponse{Entry: &pb.EntryInfo{}}
	return res, h.entry(ctx, r, &file.Request{Op: file.OpStat, Path: req.GetPath()}, nil, res.GetEntry())
}

// makeDir serves MakeDir.
func (h *fileHandler) makeDir(ctx context.Context, r *call, req *pb.MakeDirRequest) (proto.Message, error) {
	res := &pb.MakeDirResponse{Entry: &pb.EntryInfo{}}
	return res, h.entry(ctx, r, &file.Request{Op: file.OpMakeDir, Path: req.GetPath()}, nil, res.GetEntry())
}

// move serves Move.
func (h *fileHandler) move(ctx context.Context, r *call, req *pb.MoveRequest) (proto.Message, error) {
	if req.GetDestination() == "" {
		return nil, fail(CodeInvalid, "destination is required")
	}
	res := &pb.MoveResponse{Entry: &pb.EntryInfo{}}
	return res, h.entry(ctx, r, &file.Request{Op: file.OpMove, Path: req.GetSource(), To: req.GetDestination()}, nil, res.GetEntry())
}

// write serves Write, which is not part of E2B's API: it writes one small file.
func (h *fileHandler) write(ctx context.Context, r *call, req *pb.WriteRequest) (proto.Message, error) {
	res := &pb.WriteResponse{Entry: &pb.EntryInfo{}}
	return res, h.entry(ctx, r, &file.Request{Op: file.OpWrite, Path: req.GetPath()}, req.GetData(), res.GetEntry())
}

// entry sends a request whose response is one entry; content is what OpWrite writes.
func (h *fileHandler) entry(ctx context.Context, r *call, req *file.Request, content []byte, into *pb.EntryInfo) error {
	if req.Path == "" {
		return fail(CodeInvalid, "path is required")
	}
	return h.withFiles(ctx, r, req, func(f *core.Files) error {
		if req.Op == file.OpWrite {
			if _, err := f.Write(content); err != nil {
				return err
			}
			if err := f.CloseWrite(); err != nil {
				return err
			}
		}
		raw, err := f.Only()
		if err != nil {
			return err
		}
		return parseEntry(raw, into)
	})
}

// remove serves Remove.
func (h *fileHandler) remove(ctx context.Context, r *call, req *pb.RemoveRequest) (proto.Message, error) {
	if req.GetPath() == "" {
		return nil, fail(CodeInvalid, "path is required")
	}
	return &pb.RemoveResponse{}, h.withFiles(ctx, r, &file.Request{Op: file.OpRemove, Path: req.GetPath()}, (*core.Files).Done)
}

// listDir serves ListDir. An empty path means the user's home.
func (h *fileHandler) listDir(ctx context.Context, r *call, req *pb.ListDirRequest) (proto.Message, error) {
	res := &pb.ListDirResponse{}
	ask := &file.Request{Op: file.OpList, Path: req.GetPath(), Depth: req.GetDepth()}
	return res, h.withFiles(ctx, r, ask, func(f *core.Files) error {
		budget := h.streams.Budget(r.principal.Tenant)
		defer budget.Shrink(0)
		for size := 0; ; {
			raw, err := f.Entry()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if size += len(raw); size > maxListing {
				return fail(CodeExhausted, "more than %d entries in the directory: ask for less depth", len(res.GetEntries()))
			}
			if !budget.Grow(2 * size) { // parsed entries are larger
				return stream.ErrOverBudget
			}
			e := &pb.EntryInfo{}
			if err := parseEntry(raw, e); err != nil {
				return err
			}
			res.Entries = append(res.Entries, e)
		}
	})
}

// withFiles sends a request about files to the sandbox, as the user that the client
// named, and calls read with the response.
func (h *fileHandler) withFiles(ctx context.Context, r *call, req *file.Request, with func(*core.Files) error) error {
	if err := r.routed(h.sandboxes); err != nil {
		return err
	}
	req.User = r.user
	return core.WithFiles(ctx, h.files, r.principal, r.sbx, req, with)
}

// parseEntry parses a sandbox's description of a file.
func parseEntry(raw []byte, into *pb.EntryInfo) error {
	if err := proto.Unmarshal(raw, into); err != nil {
		return kind.Wrap(kind.Internal, "read answer", "", err)
	}
	return nil
}
