package record

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/paging"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/textenc"
)

// Lister lists processes.
type Lister interface {
	ProcessPage(ctx context.Context, p core.Principal, q process.Query) ([]process.Summary, process.ListCursor, error)
}

// List responds with a page of the principal's processes, newest first: those of the sandbox
// that the request names, if any, that keep selects; with active, none that ended.
func List(c *fiber.Ctx, from Lister, active bool, keep func(*process.Summary) bool) error {
	t := route.Of(c)
	if t.Named != "" && t.Sandbox == "" {
		return kind.New(kind.NotFound, "list processes", "", "sandbox not found")
	}
	limit, after, err := paging.Parse(c)
	if err != nil {
		return err
	}
	q := process.Query{Sandbox: t.Sandbox, Active: active, Limit: limit, Keep: keep}
	if after != nil {
		if q.After.ID, err = process.ParseID(after.ID); err != nil {
			return paging.ErrToken
		}
		q.After.At = after.Time
	}
	ctx, cancel := Context(c)
	defer cancel()
	found, next, err := from.ProcessPage(ctx, auth.From(c), q)
	if err != nil {
		return err
	}
	if next.ID != "" {
		paging.Continue(c, paging.Cursor{Time: next.At, ID: string(next.ID)})
	}
	out := make([]textenc.Summary, len(found))
	for i := range found {
		out[i] = textenc.SummaryOf(&found[i])
	}
	return c.JSON(out)
}
