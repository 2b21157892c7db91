package dashboard

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

// Meter has what tenants used.
type Meter interface {
	// Account returns the usage and the credits of a tenant, with everything stored before the call.
	Account(ctx context.Context, tenant string) (Account, error)
	// Configure stores the settings of a tenant's automatic payments.
	Configure(ctx context.Context, tenant string, to ledger.Configured) error
}

// Payments sells credits. *payments.Payments implements it.
type Payments interface {
	// Checkout returns the URL of a page on which the user of a tenant pays an amount.
	Checkout(ctx context.Context, tenant string, cents int64) (url string, err error)
	// Event stores what a signed webhook says.
	Event(ctx context.Context, body []byte, signature string) error
}

// Account is the usage and the credits of a tenant.
type Account struct {
	ledger.Book
	Fact func(id string) (usage.Fact, bool) // returns the usage of a sandbox
}

// View lists sandboxes. *catalog.View implements it.
type View interface {
	Sync(ctx context.Context) error
	Sandboxes(keep func(*sandbox.State) bool) []sandbox.State
}

// Config configures the surface. Meter and View are required.
type Config struct {
	Meter    Meter
	View     View
	Payments Payments         // nil: credits cannot be bought
	Now      func() time.Time // default time.Now
}

// Handler serves the routes.
type Handler struct{ Config }

// New returns the surface.
func New(cfg Config) *Handler {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Handler{cfg}
}

// Register adds the routes.
func (h *Handler) Register(r fiber.Router) {
	r.Get("/v1/usage", h.month)
	r.Get("/v1/usage/history", h.history)
	r.Get("/v1/dashboard/overview", h.overview)
	r.Get("/v1/dashboard/sandboxes", h.sandboxes)
	r.Get("/v1/dashboard/usage/daily", h.daily)
	h.registerCredits(r)
}

// total returns the sum of the days from first to last, the seconds of CPU time, and the price.
func total(days []ledger.Day, first, last usage.Day) (sum usage.Counters, seconds, cents int64) {
	for i := range days {
		if d := &days[i]; first <= d.Daily.Day && d.Daily.Day <= last {
			sum = sum.Add(d.Counters)
			seconds += d.Seconds()
			cents += d.Cents
		}
	}
	return sum, seconds, cents
}

// dollars returns cents as JSON has them: 2.34. Such a number prints as it is.
func dollars(cents int64) float64 { return float64(cents) / 100 }
