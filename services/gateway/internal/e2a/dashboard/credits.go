package dashboard

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

const (
	minAmount = 500        // cents of a payment
	maxAmount = 99_999_999 // cents of a payment
)

// errNoPayments is the error of a valid request for a payment: nothing can be paid yet.
func errNoPayments() error {
	return kind.Coded(kind.Unimplemented, "pay", "", "payments_unavailable", "credits cannot be bought here")
}

// registerCredits adds the routes of credits.
func (h *Handler) registerCredits(r fiber.Router) {
	r.Get("/v1/billing/balance", h.balance)
	r.Get("/v1/billing/transactions", h.transactions)
	r.Post("/v1/billing/checkout", h.checkout)
	r.Get("/v1/billing/auto-topup", h.autoTopup)
	r.Post("/v1/billing/auto-topup", h.setAutoTopup)
}

// balance serves GET /v1/billing/balance.
func (h *Handler) balance(c *fiber.Ctx) error {
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Balance int64 `json:"credit_balance"`
	}{a.Balance})
}

type transaction struct {
	ID          string `json:"id"`
	Amount      int64  `json:"amount"` // cents; negative: a deduction
	Description string `json:"description"`
	Time        string `json:"timestamp"`
}

// transactions serves GET /v1/billing/transactions: the deductions of each day with a price, newest
// first. That of the current day grows. Their sum is the balance.
func (h *Handler) transactions(c *fiber.Ctx) error {
	page, err := PageOf(c)
	if err != nil {
		return err
	}
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	all := []transaction{}
	for i := len(a.Days) - 1; i >= 0; i-- {
		if d := &a.Days[i]; d.Cents > 0 {
			all = append(all, transaction{"txn_usage_" + d.Day.String(), -d.Cents, "Sandbox usage", stamp(d.Day.Start())})
		}
	}
	return body.Write(c, fiber.StatusOK, struct {
		Transactions []transaction `json:"transactions"`
	}{Cut(all, page)})
}

// checkout serves POST /v1/billing/checkout.
func (h *Handler) checkout(c *fiber.Ctx) error {
	var amount int64
	if err := body.Decode(c, body.Field{Name: "credit_amount", Into: &amount, Want: wantCents}); err != nil {
		return err
	}
	if amount < minAmount || amount > maxAmount {
		return invalidAmount("credit_amount")
	}
	return errNoPayments()
}

const wantCents = "a whole number of cents"

func invalidAmount(name string) error {
	return kind.Newf(kind.Invalid, "decode", "", "%s must be from %d to %d cents", name, minAmount, maxAmount)
}

type topup struct {
	Enabled   bool  `json:"enabled"`
	Threshold int64 `json:"threshold_amount"`
	Amount    int64 `json:"topup_amount"`
}

// autoTopup serves GET /v1/billing/auto-topup.
func (h *Handler) autoTopup(c *fiber.Ctx) error { return body.Write(c, fiber.StatusOK, topup{}) }

// setAutoTopup serves POST /v1/billing/auto-topup.
func (h *Handler) setAutoTopup(c *fiber.Ctx) error {
	var enabled *bool
	var threshold, amount *int64
	err := body.Decode(c,
		body.Field{Name: "enabled", Into: &enabled, Want: "a boolean"},
		body.Field{Name: "threshold_amount", Into: &threshold, Want: wantCents},
		body.Field{Name: "topup_amount", Into: &amount, Want: wantCents})
	switch {
	case err != nil:
		return err
	case enabled == nil || threshold == nil || amount == nil:
		return body.Invalid("enabled, threshold_amount and topup_amount are required")
	case *threshold < 0 || *threshold > maxAmount:
		return kind.Newf(kind.Invalid, "decode", "", "threshold_amount must be from 0 to %d cents", maxAmount)
	case *amount < minAmount || *amount > maxAmount:
		return invalidAmount("topup_amount")
	}
	return errNoPayments()
}
