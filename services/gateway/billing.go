package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/dashboard"
	"github.com/millrace/millrace/services/gateway/internal/payments"
)

// BillingConfig configures the price of usage.
type BillingConfig struct {
	Price    usage.Price      // default: free
	Interval time.Duration    // between two roll-ups of usage; default a minute
	Keep     time.Duration    // age of the usage of single sandboxes that is removed; default meter.Keep
	Stripe   StripeConfig     // payments; the zero value: credits cannot be bought
	Refuse   bool             // whether a tenant without credits is refused new sandboxes and sessions of e2a
	Now      func() time.Time // for tests; default time.Now
}

// StripeConfig configures payments through Stripe.
type StripeConfig struct {
	Key        string // secret key; empty: no payments
	WebhookKey string // signing secret of the webhook
	API        string // address of Stripe; default https://api.stripe.com
	Return     string // URL of the page that a user returns to
}

const (
	rollUpInterval = time.Minute
	sweepPart      = 10 // how many times rarer than roll-ups old usage is removed
)

// books returns the usage and the credits of tenants. Its views must be started.
type books struct {
	cfg     BillingConfig
	meter   *meter.Store
	ledger  *ledger.Store
	timeout time.Duration
	slog    *slog.Logger

	payments *payments.Payments // nil: credits cannot be bought
}

func newBooks(cfg *Config, timeout time.Duration) *books {
	b := &books{cfg: cfg.Billing, meter: cfg.Log.Meter(), ledger: cfg.Log.Ledger(), timeout: timeout, slog: cfg.Slog}
	b.cfg.Interval = cmp.Or(b.cfg.Interval, rollUpInterval)
	b.cfg.Keep = cmp.Or(b.cfg.Keep, meter.Keep)
	if b.cfg.Now == nil {
		b.cfg.Now = time.Now
	}
	if s := b.cfg.Stripe; s.Key != "" {
		b.payments = payments.New(payments.Config{
			Key: s.Key, WebhookKey: s.WebhookKey, API: s.API, Return: s.Return, Ledger: b.ledger, Now: b.cfg.Now, Slog: b.slog,
		})
	}
	return b
}

// surface returns the surface of usage and credits.
func (b *books) surface(view dashboard.View) *dashboard.Handler {
	cfg := dashboard.Config{Meter: b, View: view, Now: b.cfg.Now}
	if b.payments != nil {
		cfg.Payments = b.payments
	}
	return dashboard.New(cfg)
}

// Configure implements dashboard.Meter.
func (b *books) Configure(ctx context.Context, tenant string, to ledger.Configured) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	_, err := b.ledger.Change(ctx, tenant, func(*ledger.Topup) (ledger.Body, error) { return to, nil })
	return core.LogError("store credits", "", err)
}

// start folds the usage and the credits until viewing ends, and returns when the views are up to date.
func (b *books) start(ctx, viewing context.Context) error {
	if err := b.meter.Start(viewing); err != nil {
		return err
	}
	if err := b.ledger.Start(viewing); err != nil {
		return err
	}
	return b.sync(ctx)
}

func (b *books) sync(ctx context.Context) error {
	if err := b.meter.Sync(ctx); err != nil {
		return err
	}
	return b.ledger.Sync(ctx)
}

// run stores what days cost, and removes old usage, until ctx ends.
func (b *books) run(ctx context.Context) error {
	tick := time.NewTicker(b.cfg.Interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := b.rollUp(ctx)
		if err == nil && b.payments != nil {
			b.payments.TopUp(ctx, func(tenant string) int64 {
				book := b.update(tenant, b.ledger.Book(tenant))
				return book.Balance()
			})
		}
		if err == nil && n%sweepPart == 0 {
			err = b.sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			b.slog.Warn("roll up usage failed", "err", err)
		}
	}
}

// rollUp stores the days whose usage has changed, and settles old ones. Of gateways that do that at the
// same time, one succeeds for each day.
func (b *books) rollUp(ctx context.Context) error {
	if err := b.sync(ctx); err != nil {
		return err
	}
	for _, tenant := range b.meter.Tenants() {
		stored := b.ledger.Book(tenant)
		was := make(map[usage.Day]ledger.Day, len(stored.Days))
		for _, d := range stored.Days {
			was[d.Daily.Day] = d
		}
		for _, d := range b.update(tenant, stored).Days {
			if d == was[d.Daily.Day] {
				continue
			}
			if err := b.ledger.PutDay(ctx, tenant, &d); err != nil && !kind.Is(err, kind.Conflict) {
				return err
			}
		}
	}
	return nil
}

// sweep removes the usage of single sandboxes and conversations that is in settled days.
func (b *books) sweep(ctx context.Context) error {
	_, err := b.meter.Sweep(ctx, b.cfg.Keep, func(f *usage.Fact) bool {
		book := b.ledger.Book(f.Tenant)
		return book.Settled(f)
	})
	return err
}

// update returns a book with the days as of the view of usage.
func (b *books) update(tenant string, stored ledger.Book) ledger.Book {
	return stored.Update(usage.Sum(b.meter.Facts(tenant)), b.cfg.Price, usage.DayOf(b.cfg.Now()))
}

// Afford returns an error if a tenant has no credits and may therefore not create sandboxes.
func (b *books) Afford(ctx context.Context, tenant string) error {
	if !b.cfg.Refuse {
		return nil
	}
	a, err := b.Account(ctx, tenant)
	if err != nil || a.Book.Balance() > 0 {
		return err
	}
	return kind.Coded(kind.Denied, "create sandbox", "", "insufficient_credits", "the balance of credits must be above 0")
}

// Account implements dashboard.Meter.
func (b *books) Account(ctx context.Context, tenant string) (dashboard.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.sync(ctx); err != nil {
		return dashboard.Account{}, core.LogError("read usage", "", err)
	}
	return dashboard.Account{
		Book: b.update(tenant, b.ledger.Book(tenant)),
		Fact: func(id string) (usage.Fact, bool) { return b.meter.Fact(tenant, id) },
	}, nil
}
