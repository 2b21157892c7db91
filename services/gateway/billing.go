package gateway

import (
	"context"
	"time"

	"github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2a/dashboard"
)

// BillingConfig configures the price of usage.
type BillingConfig struct {
	Price usage.Price      // default: free
	Now   func() time.Time // for tests; default time.Now
}

// books returns the usage and the credits of tenants. Its view must be started.
type books struct {
	meter   *meter.Store
	price   usage.Price
	timeout time.Duration
}

// start folds the usage until viewing ends, and returns when the view is up to date.
func (b *books) start(ctx, viewing context.Context) error {
	if err := b.meter.Start(viewing); err != nil {
		return err
	}
	return b.meter.Sync(ctx)
}

// Account implements dashboard.Meter.
func (b *books) Account(ctx context.Context, tenant string) (dashboard.Account, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.meter.Sync(ctx); err != nil {
		return dashboard.Account{}, core.LogError("read usage", "", err)
	}
	a := dashboard.Account{Fact: func(id string) (usage.Fact, bool) { return b.meter.Fact(tenant, id) }}
	for _, d := range usage.Sum(b.meter.Facts(tenant)) {
		cents := b.price.Cents(d.CPU)
		a.Days = append(a.Days, dashboard.Day{Daily: d, Cents: cents})
		a.Balance -= cents
	}
	return a, nil
}
