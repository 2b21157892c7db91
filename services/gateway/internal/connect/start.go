package connect

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

// maxKey is the longest idempotency key.
const maxKey = 255

// start serves Start: it starts a process and streams its record.
func (h *Handler) start(c *fiber.Ctx, r *call, raw []byte) error {
	var req pb.StartRequest
	if err := r.format.decode(raw, &req); err != nil {
		return err
	}
	spec := specOf(&req, r)
	// Not bounded by the client's timeout: that applies to the process.
	id, src, err := h.core.Start(c.UserContext(), r.principal, r.sbx, spec, procs.StartOptions{IdempotencyKey: r.key})
	if kind.Is(err, kind.NotFound) {
		return &unrouted{r.named}
	}
	if err != nil {
		return err
	}
	return h.serve(c, r, id, &spec, src, nil)
}

// Default size of a terminal.
const (
	defaultCols = 80
	defaultRows = 24
)

// specOf returns the spec that a StartRequest describes. Stdin is open unless the
// client disables it.
func specOf(req *pb.StartRequest, r *call) process.Spec {
	p := req.GetProcess()
	spec := process.Spec{
		Cmd: p.GetCmd(), Args: p.GetArgs(), Env: p.GetEnvs(), Cwd: p.GetCwd(), User: r.user,
		Stdin: req.Stdin == nil || req.GetStdin(), Tag: req.Tag, Timeout: r.timeout,
	}
	if req.GetPty() != nil {
		spec.PTY = &process.Size{Cols: defaultCols, Rows: defaultRows}
		if s := req.GetPty().GetSize(); s != nil {
			*spec.PTY = process.Size{Cols: s.GetCols(), Rows: s.GetRows()}
		}
	}
	hideMCP(&spec)
	return spec
}
