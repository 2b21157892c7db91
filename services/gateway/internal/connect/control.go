package connect

import (
	"context"
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

// find returns the process that a request selects. If it does not exist and its
// sandbox does not run, the error is unrouted.
func (h *Handler) find(ctx context.Context, r *call, s *pb.ProcessSelector) (process.Summary, error) {
	sel, err := r.selector(s)
	if err != nil {
		return process.Summary{}, err
	}
	sum, err := h.core.Find(ctx, r.principal, r.sbx, sel)
	if kind.Is(err, kind.NotFound) {
		if over := r.routed(h.core); over != nil {
			return sum, over
		}
		return sum, fail(CodeNotFound, "process with %s not found", describe(&sel))
	}
	return sum, err
}

// selector reads which process is selected: by the header, by the message, or by pid
// or tag at the message's top level, which some clients send.
func (r *call) selector(s *pb.ProcessSelector) (procs.Selector, error) {
	if r.process != "" {
		return procs.Selector{ID: r.process}, nil
	}
	switch sel := s.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		return procs.Selector{PID: sel.Pid}, nil
	case *pb.ProcessSelector_Tag:
		return procs.Selector{Tag: &sel.Tag}, nil
	}
	var flat struct {
		PID *uint32 `json:"pid"`
		Tag *string `json:"tag"`
	}
	if len(r.raw) > 0 && json.Unmarshal(r.raw, &flat) == nil {
		switch {
		case flat.PID != nil:
			return procs.Selector{PID: *flat.PID}, nil
		case flat.Tag != nil:
			return procs.Selector{Tag: flat.Tag}, nil
		}
	}
	return procs.Selector{}, fail(CodeInvalid, "process selector is required: pid or tag")
}

func describe(s *procs.Selector) string {
	switch {
	case s.ID != "":
		return "id " + string(s.ID)
	case s.Tag != nil:
		return "tag " + *s.Tag
	}
	return "pid " + strconv.FormatUint(uint64(s.PID), 10)
}

// act finds a process and calls do with it. A process that has ended in the meantime
// is reported like one that never existed.
func (h *Handler) act(ctx context.Context, r *call, s *pb.ProcessSelector, do func(*process.Summary) error) error {
	sum, err := h.find(ctx, r, s)
	if err != nil {
		return err
	}
	err = do(&sum)
	if !kind.Is(err, kind.NotFound) {
		return err
	}
	if over := r.routed(h.core); over != nil {
		return over
	}
	return fail(CodeNotFound, "process with pid %d not found", sum.PID)
}

// list serves List: the running processes.
func (h *Handler) list(ctx context.Context, r *call, _ *pb.ListRequest) (proto.Message, error) {
	if err := r.routed(h.core); err != nil {
		return nil, err
	}
	active, err := h.core.ActiveProcesses(ctx, r.principal, r.sbx, func(s *process.Summary) bool { return s.PID != 0 })
	if kind.Is(err, kind.NotFound) {
		return nil, &unrouted{r.named}
	}
	if err != nil {
		return nil, err
	}
	res := &pb.ListResponse{Processes: make([]*pb.ProcessInfo, len(active))}
	for i := range active {
		s := &active[i]
		if s.Spec.Env, err = h.core.Env(s); err != nil {
			return nil, err
		}
		showMCP(&s.Spec)
		config := &pb.ProcessConfig{Cmd: s.Spec.Cmd, Args: s.Spec.Args, Envs: s.Spec.Env}
		if s.Spec.Cwd != "" {
			config.Cwd = &s.Spec.Cwd
		}
		res.Processes[i] = &pb.ProcessInfo{Config: config, Pid: s.PID, Tag: s.Spec.Tag}
	}
	return res, nil
}

// sendSignal serves SendSignal: KILL or TERM to the process's group.
func (h *Handler) sendSignal(ctx context.Context, r *call, req *pb.SendSignalRequest) (proto.Message, error) {
	switch req.GetSignal() {
	case pb.Signal_SIGNAL_SIGKILL, pb.Signal_SIGNAL_SIGTERM:
	default:
		return nil, fail(CodeUnimpl, "invalid signal: %s", req.GetSignal())
	}
	return &pb.SendSignalResponse{}, h.act(ctx, r, req.GetProcess(), func(s *process.Summary) error {
		return h.core.Signal(ctx, r.principal, s.ID, int32(req.GetSignal()))
	})
}

// update serves Update: it sets a terminal's size. A process without a terminal is
// left unchanged.
func (h *Handler) update(ctx context.Context, r *call, req *pb.UpdateRequest) (proto.Message, error) {
	return &pb.UpdateResponse{}, h.act(ctx, r, req.GetProcess(), func(s *process.Summary) error {
		size := req.GetPty().GetSize()
		if size == nil {
			return nil
		}
		return h.core.Resize(ctx, r.principal, s.ID, process.Size{Cols: size.GetCols(), Rows: size.GetRows()})
	})
}
