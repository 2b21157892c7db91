package dashboard

import (
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

const (
	minAmount = 500 // cents of a payment
	maxAmount = ledger.MaxCents
	maxEvent  = 256 << 10 // bytes of a webhook
)

// errNoPayments is the error of a valid request for a payment on a gateway that has no payment provider.
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
	r.Post("/v1/billing/webhook", h.webhook)
}

// balance serves GET /v1/billing/balance.
func (h *Handler) balance(c *fiber.Ctx) error {
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Balance int64 `json:"credit_balance"`
	}{a.Balance()})
}

type transaction struct {
	ID          string `json:"id"`
	Amount      int64  `json:"amount"` // cents; negative: a deduction
	Description string `json:"description"`
	Time        string `json:"timestamp"`
}

// descriptions are those of entries, by kind.
var descriptions = map[string]string{ledger.Payment: "Credits bought", ledger.Auto: "Automatic top-up", ledger.Refund: "Refund"}

// transactionsOf returns the payments, the refunds and the deduction of each day with a price, newest
// first. Their sum is the balance.
func transactionsOf(b *ledger.Book) []transaction {
	type dated struct {
		transaction
		at time.Time
	}
	var all []dated
	for i := range b.Days {
		if d := &b.Days[i]; d.Cents > 0 {
			at := d.Daily.Day.Start()
			all = append(all, dated{transaction{"txn_usage_" + d.Daily.Day.String(), -d.Cents, "Sandbox usage", stamp(at)}, at})
		}
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		all = append(all, dated{transaction{"txn_" + e.Key(), e.Cents, descriptions[e.Kind], stamp(e.At)}, e.At})
	}
	slices.SortStableFunc(all, func(x, y dated) int { return y.at.Compare(x.at) })
	out := make([]transaction, len(all))
	for i := range all {
		out[i] = all[i].transaction
	}
	return out
}

// transactions serves GET /v1/billing/transactions. The deduction of the current day grows.
func (h *Handler) transactions(c *fiber.Ctx) error {
	page, err := PageOf(c)
	if err != nil {
		return err
	}
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	all := transactionsOf(&a.Book)
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
	if h.Payments == nil {
		return errNoPayments()
	}
	url, err := h.Payments.Checkout(c.UserContext(), auth.From(c).Tenant, amount)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		URL string `json:"url"`
	}{url})
}

// webhook serves POST /v1/billing/webhook, which the payment provider calls.
func (h *Handler) webhook(c *fiber.Ctx) error {
	if h.Payments == nil {
		return errNoPayments()
	}
	if r := c.Context().RequestBodyStream(); r != nil {
		switch n, err := httpconn.ReadBody(c, r, maxEvent); {
		case n > maxEvent:
			return fiber.ErrRequestEntityTooLarge
		case err != nil:
			return httpconn.Unreadable(c)
		}
	}
	raw, err := record.Body(c)
	if err != nil {
		return err
	}
	if err := h.Payments.Event(c.UserContext(), raw, c.Get("Stripe-Signature")); err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Received bool `json:"received"`
	}{true})
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
func (h *Handler) autoTopup(c *fiber.Ctx) error {
	a, err := h.Meter.Account(c.UserContext(), auth.From(c).Tenant)
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, topup{a.Topup.Enabled, a.Topup.Threshold, a.Topup.Amount})
}

// setAutoTopup serves POST /v1/billing/auto-topup. A gateway without a payment provider stores the settings, too.
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
	err = h.Meter.Configure(c.UserContext(), auth.From(c).Tenant, ledger.Configured{Enabled: *enabled, Threshold: *threshold, Amount: *amount})
	if err != nil {
		return err
	}
	return body.Write(c, fiber.StatusOK, struct {
		Status string `json:"status"`
	}{"updated"})
}
