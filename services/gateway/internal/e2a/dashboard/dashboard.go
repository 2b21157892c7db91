package dashboard

import (
	"cmp"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/e2a/vmid"
)

type overviewBody struct {
	Sandboxes    int64 `json:"sandbox_count"`
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	CPUSeconds   int64 `json:"cpu_seconds"`
	ToolCalls    int64 `json:"billable_tool_calls"`
}

// overview serves GET /v1/dashboard/overview: the sums of all days.
func (h *Handler) overview(c *fiber.Ctx) error {
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	var b overviewBody
	if n := len(a.Days); n > 0 {
		sum, seconds, _ := total(a.Days, a.Days[0].Daily.Day, a.Days[n-1].Daily.Day)
		b = overviewBody{sum.Sandboxes, sum.InputTokens, sum.OutputTokens, seconds, sum.ToolCalls}
	}
	return body.Write(c, fiber.StatusOK, b)
}

type dayBody struct {
	Day          string `json:"day"`
	InputTokens  int64  `json:"input_tokens"`
	OutputTokens int64  `json:"output_tokens"`
	CPUSeconds   int64  `json:"cpu_seconds"`
}

// daily serves GET /v1/dashboard/usage/daily: the days with usage between two days.
func (h *Handler) daily(c *fiber.Ctx) error {
	from, to := noDay, noDay
	if err := dayOf(c, "from", &from); err != nil {
		return err
	}
	if err := dayOf(c, "to", &to); err != nil {
		return err
	}
	switch {
	case from == noDay || to == noDay:
		return body.Invalid("from and to are required")
	case to < from:
		return body.Invalid("to must not be before from")
	}
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	out := []dayBody{}
	for i := range a.Days {
		if d := &a.Days[i]; from <= d.Daily.Day && d.Daily.Day <= to {
			out = append(out, dayBody{d.Daily.Day.String(), d.InputTokens, d.OutputTokens, d.Seconds()})
		}
	}
	return body.Write(c, fiber.StatusOK, struct {
		Entries []dayBody `json:"entries"`
	}{out})
}

// listed is a sandbox in the list. A time that has not come is absent.
type listed struct {
	ID         string `json:"vm_id"`
	Template   string `json:"template"`
	Running    bool   `json:"running"`
	Created    string `json:"created_at"`
	Started    string `json:"started_at,omitempty"`
	Ended      string `json:"ended_at,omitempty"`
	CPUSeconds int64  `json:"cpu_seconds"`
	LastKnown  bool   `json:"usage_incomplete"` // the host of the sandbox was lost
}

// sandboxes serves GET /v1/dashboard/sandboxes: the sandboxes that ran, newest first. They are
// listed for 30 days after their end.
func (h *Handler) sandboxes(c *fiber.Ctx) error {
	page, err := PageOf(c)
	if err != nil {
		return err
	}
	tenant := auth.From(c).Tenant
	if err := h.View.Sync(c.UserContext()); err != nil {
		return err
	}
	a, err := h.Meter.Account(c.UserContext(), tenant)
	if err != nil {
		return err
	}
	all := h.View.Sandboxes(func(s *sandbox.State) bool {
		return s.Tenant == tenant && !s.Started.IsZero() && s.Request.Build == ""
	})
	out := []listed{}
	for _, s := range Cut(all, page) {
		f, _ := a.Fact(string(s.ID))
		out = append(out, listed{
			ID: vmid.Of(s.ID), Template: cmp.Or(s.Request.Alias, s.Request.Built, s.Request.Template), Running: !s.Over(),
			Created: stamp(s.Created), Started: stamp(s.Started), Ended: stamp(s.Ended),
			CPUSeconds: int64(f.CPU() / time.Second), LastKnown: f.LastKnown,
		})
	}
	return body.Write(c, fiber.StatusOK, struct {
		Sandboxes []listed `json:"sandboxes"`
		Total     int      `json:"total"`
	}{out, len(all)})
}

// stamp formats a time; "" is none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// noDay is no day that a query can have.
const noDay usage.Day = -1 << 31
