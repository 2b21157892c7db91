package dashboard

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// infra is the use of machines.
type infra struct {
	CPUSeconds   int64   `json:"cpu_seconds"`
	SandboxCount int64   `json:"sandbox_count"`
	CreditsUsed  float64 `json:"credits_used_usd"`
}

type credits struct {
	Balance   float64 `json:"balance_usd"`
	AutoTopup bool    `json:"auto_topup_enabled"`
}

type monthBody struct {
	Tenant  string  `json:"tenant_id"`
	Period  string  `json:"period"`
	Infra   infra   `json:"infra_usage"`
	Credits credits `json:"credits"`
}

// month serves GET /v1/usage: the current month.
func (h *Handler) month(c *fiber.Ctx) error {
	p := auth.From(c)
	a, err := h.Meter.Account(c.UserContext(), p.Tenant)
	if err != nil {
		return err
	}
	first, last := usage.DayOf(h.Now()).Month()
	sum, seconds, cents := total(a.Days, first, last)
	return body.Write(c, fiber.StatusOK, monthBody{
		Tenant: p.Tenant, Period: first.String() + ".." + last.String(),
		Infra:   infra{seconds, sum.Sandboxes, dollars(cents)},
		Credits: credits{dollars(a.Balance()), a.Topup.Enabled},
	})
}

// window is one day of the history.
type window struct {
	Start    string `json:"period_start"`
	End      string `json:"period_end"`
	Infra    infra  `json:"infra_usage"`
	Sessions int64  `json:"session_count"`
}

const historyDays = 30 // default of the history

// history serves GET /v1/usage/history: the days with usage from a day on and before another one.
func (h *Handler) history(c *fiber.Ctx) error {
	today := usage.DayOf(h.Now())
	from, to := today-historyDays, today
	if err := dayOf(c, "from", &from); err != nil {
		return err
	}
	if err := dayOf(c, "to", &to); err != nil {
		return err
	}
	if to <= from {
		return body.Invalid("to must be after from")
	}
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	out := []window{}
	for i := range a.Days {
		if d := &a.Days[i]; from <= d.Daily.Day && d.Daily.Day < to {
			out = append(out, window{d.Daily.Day.String(), d.Daily.Day.String(), infra{d.Seconds(), d.Sandboxes, dollars(d.Cents)}, d.Sessions})
		}
	}
	return body.Write(c, fiber.StatusOK, struct {
		Entries []window `json:"entries"`
	}{out})
}
