package payments

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/ledger"
)

const (
	// DefaultAPI is the address of Stripe.
	DefaultAPI = "https://api.stripe.com"

	callTimeout = 20 * time.Second
	product     = "Millrace credits"
	currency    = "usd"

	// keyLife is how long Stripe remembers an idempotency key, with a reserve. An older request is
	// not repeated.
	keyLife = 23 * time.Hour
)

// Config configures Payments. Key, WebhookKey, Return and Ledger are required.
type Config struct {
	Key        string // secret key of the account
	WebhookKey string // signing secret of the webhook
	API        string // address of Stripe; default DefaultAPI
	Return     string // URL of the page that a user returns to
	Ledger     *ledger.Store
	Now        func() time.Time // default time.Now
	Slog       *slog.Logger
}

// Payments implements payments. Its methods may be called concurrently.
type Payments struct {
	cfg    Config
	client *http.Client
}

// New returns Payments. It does no I/O.
func New(cfg Config) *Payments {
	cfg.API = cmp.Or(cfg.API, DefaultAPI)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	// A redirect could send the key to another host.
	return &Payments{cfg, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Checkout returns the URL of a page on which the user of a tenant pays an amount. The card is kept for
// automatic payments.
func (p *Payments) Checkout(ctx context.Context, tenant string, cents int64) (string, error) {
	form := url.Values{
		"mode":                                  {"payment"},
		"success_url":                           {p.cfg.Return},
		"cancel_url":                            {p.cfg.Return},
		"client_reference_id":                   {tenant},
		"metadata[tenant]":                      {tenant},
		"payment_intent_data[metadata][tenant]": {tenant},
		"payment_intent_data[setup_future_usage]":       {"off_session"},
		"line_items[0][quantity]":                       {"1"},
		"line_items[0][price_data][currency]":           {currency},
		"line_items[0][price_data][unit_amount]":        {strconv.FormatInt(cents, 10)},
		"line_items[0][price_data][product_data][name]": {product},
	}
	if customer := p.cfg.Ledger.Book(tenant).Topup.Customer; customer != "" {
		form.Set("customer", customer)
	} else {
		form.Set("customer_creation", "always")
	}
	var session struct {
		URL string `json:"url"`
	}
	err := p.call(ctx, http.MethodPost, "/v1/checkout/sessions", "", form, &session)
	if err == nil && session.URL == "" {
		err = unavailable(errors.New("the checkout has no address"))
	}
	if err != nil {
		p.cfg.Slog.Warn("create checkout failed", "err", err)
	}
	return session.URL, err
}

// TopUp requests the automatic payments that are due, and repeats those without a result. balance returns the
// balance of a tenant, not older than the call. The view of the ledger must be up to date.
func (p *Payments) TopUp(ctx context.Context, balance func(tenant string) int64) {
	for _, t := range p.cfg.Ledger.Topups() {
		if err := p.topUp(ctx, t, balance); err != nil && ctx.Err() == nil {
			p.cfg.Slog.Warn("automatic payment failed", "tenant", t.Tenant, "number", t.Number, "err", err)
		}
	}
}

func (p *Payments) topUp(ctx context.Context, t ledger.Topup, balance func(tenant string) int64) error {
	if t.Phase() == ledger.Idle {
		if !t.Due(balance(t.Tenant)) {
			return nil
		}
		// With a newer state, another gateway may have received a payment that is not in the balance.
		rev, changed := t.Rev, false
		next, err := p.cfg.Ledger.Change(ctx, t.Tenant, func(now *ledger.Topup) (ledger.Body, error) {
			if changed = now.Rev != rev; changed {
				return nil, nil
			}
			return ledger.Requested{At: p.cfg.Now()}, nil
		})
		if err != nil || changed {
			return err
		}
		t = next
	}
	return p.request(ctx, &t)
}

// intent is a payment of Stripe.
type intent struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// request requests the payment that a tenant waits for, or finds its result.
func (p *Payments) request(ctx context.Context, t *ledger.Topup) error {
	if p.cfg.Ledger.Has(t.Tenant, ledger.AutoID(t.Number)) {
		return p.finish(ctx, t.Tenant, ledger.Received{Number: t.Number}, t.Number)
	}
	if p.cfg.Now().Sub(t.Asked) > keyLife {
		p.cfg.Slog.Warn("automatic payment without a result given up", "tenant", t.Tenant, "number", t.Number)
		return p.finish(ctx, t.Tenant, ledger.Declined{Number: t.Number}, t.Number)
	}
	var cards struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err := p.call(ctx, http.MethodGet, "/v1/customers/"+url.PathEscape(t.Customer)+"/payment_methods", "", url.Values{"limit": {"1"}}, &cards)
	if err != nil {
		return err
	}
	if len(cards.Data) == 0 {
		return p.finish(ctx, t.Tenant, ledger.Declined{Number: t.Number}, t.Number)
	}
	number := strconv.FormatInt(t.Number, 10)
	var made intent
	err = p.call(ctx, http.MethodPost, "/v1/payment_intents", "millrace-"+t.Tenant+"-"+number, url.Values{
		"amount":           {strconv.FormatInt(t.Pending, 10)},
		"currency":         {currency},
		"customer":         {t.Customer},
		"payment_method":   {cards.Data[0].ID},
		"off_session":      {"true"},
		"confirm":          {"true"},
		"description":      {product},
		"metadata[tenant]": {t.Tenant},
		"metadata[number]": {number},
	}, &made)
	var refused *refusal
	switch {
	case errors.As(err, &refused) && refused.declined():
		p.cfg.Slog.Info("automatic payment declined", "tenant", t.Tenant, "number", t.Number, "code", refused.Code)
		return p.finish(ctx, t.Tenant, ledger.Declined{Number: t.Number}, t.Number)
	case err != nil:
		return err
	case made.Status == "succeeded":
		return p.received(ctx, t.Tenant, t.Number, t.Pending)
	}
	return nil // a webhook has the result
}

// received stores the entry of an automatic payment, and that it has arrived.
func (p *Payments) received(ctx context.Context, tenant string, number, cents int64) error {
	_, err := p.cfg.Ledger.Add(ctx, ledger.Entry{Tenant: tenant, ID: ledger.AutoID(number), Kind: ledger.Auto, Cents: cents, At: p.cfg.Now()})
	if err != nil {
		return err
	}
	return p.finish(ctx, tenant, ledger.Received{Number: number}, number)
}

// finish stores the result of the automatic payment with a number, unless it has one.
func (p *Payments) finish(ctx context.Context, tenant string, result ledger.Body, number int64) error {
	_, err := p.cfg.Ledger.Change(ctx, tenant, func(t *ledger.Topup) (ledger.Body, error) {
		if t.Phase() != ledger.Waiting || t.Number != number {
			return nil, nil
		}
		return result, nil
	})
	return err
}
