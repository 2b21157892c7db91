package screens

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// maxProcesses is the number of processes in the timeline of a sandbox, the newest.
const maxProcesses = 500

// Sandboxes reads the records of sandboxes, and lists their processes.
type Sandboxes interface {
	FindSandbox(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	ProcessPage(ctx context.Context, p core.Principal, q process.Query) ([]process.Summary, process.ListCursor, error)
}

// SandboxLog reads the lifecycle events of a sandbox, oldest first, until yield returns false.
type SandboxLog interface {
	SandboxLifecycle(ctx context.Context, tenant string, id sandbox.ID, yield func(webhook.Event) bool) error
}

// run is a process in the timeline of its sandbox.
type run struct {
	ID     process.ID `json:"id"`
	Cmd    string     `json:"cmd"`
	Start  *time.Time `json:"start"`
	End    *time.Time `json:"end"`
	Status string     `json:"status"`
}

// sandboxBody is the timeline of a sandbox in a response.
type sandboxBody struct {
	Start     time.Time  `json:"start"`
	End       *time.Time `json:"end"`
	Marks     []mark     `json:"marks"`
	Processes []run      `json:"processes"`
}

// sandboxTimeline responds with the timeline of a sandbox.
func (h *Handler) sandboxTimeline(c *fiber.Ctx) error {
	id, err := sandbox.ParseID(strings.Clone(c.Params("sandbox")))
	if err != nil {
		return err
	}
	p, err := h.cfg.Access.Sandbox(c, id)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	st, err := h.cfg.Sandboxes.FindSandbox(ctx, p, id)
	if err != nil {
		return err
	}
	body := sandboxBody{Start: st.Created.UTC(), End: textenc.OptionalTime(st.Ended), Processes: []run{}}
	if body.Marks, err = h.sandboxMarks(ctx, &st); err != nil {
		return err
	}
	found, _, err := h.cfg.Sandboxes.ProcessPage(ctx, p, process.Query{Sandbox: id, Limit: maxProcesses, Keep: func(*process.Summary) bool { return true }})
	if err != nil {
		return err
	}
	for i := range found {
		body.Processes = append(body.Processes, runOf(&found[i]))
	}
	slices.Reverse(body.Processes) // the oldest first
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.JSON(body)
}

// sandboxMarks returns the marks of a sandbox in the order of time.
func (h *Handler) sandboxMarks(ctx context.Context, st *sandbox.State) ([]mark, error) {
	marks := []mark{{Time: st.Created.UTC(), Kind: "created", Text: st.Request.Template}}
	if !st.Started.IsZero() {
		marks = append(marks, mark{Time: st.Started.UTC(), Kind: "started", Text: st.Driver})
	}
	err := h.cfg.SandboxLog.SandboxLifecycle(ctx, st.Tenant, st.ID, func(e webhook.Event) bool {
		if kind, text := sandboxMark(&e); kind != "" {
			marks = append(marks, mark{Time: e.Time.UTC(), Kind: kind, Text: text})
		}
		return len(marks) < maxMarks
	})
	if err != nil {
		return nil, err
	}
	if !st.Ended.IsZero() {
		marks = append(marks, mark{Time: st.Ended.UTC(), Kind: "ended", Text: cmp.Or(st.Cause, string(st.Phase))})
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return a.Time.Compare(b.Time) })
	return marks, nil
}

// sandboxMark returns the kind and the text of the mark for an event; "" is none.
func sandboxMark(e *webhook.Event) (kind, text string) {
	switch e.Type {
	case webhook.Paused:
		return "paused", e.Reason
	case webhook.Resumed:
		return "resumed", ""
	case webhook.Checkpointed:
		return "snapshot", e.Snapshot
	case webhook.Created, webhook.Updated, webhook.Killed: // the state has the times of the beginning and the end
	}
	return "", ""
}

func runOf(s *process.Summary) run {
	out := run{
		ID: s.ID, Cmd: strings.Join(append([]string{s.Spec.Cmd}, s.Spec.Args...), " "),
		Start: textenc.OptionalTime(s.Started), End: textenc.OptionalTime(s.Ended), Status: textenc.StateOf(s),
	}
	if s.Exit != nil {
		out.Status = statusOf(s.Exit)
	}
	return out
}
