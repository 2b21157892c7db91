package dashboard

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

// Meter has what tenants used.
type Meter interface {
	// Account returns the usage and the credits of a tenant, with everything stored before the call.
	Account(ctx context.Context, tenant string) (Account, error)
}

// Account is the usage and the credits of a tenant.
type Account struct {
	Days      []Day // with usage, oldest first
	Balance   int64 // cents
	AutoTopup bool
	Fact      func(id string) (usage.Fact, bool) // returns the usage of a sandbox
}

// Day is the usage of a day and its price.
type Day struct {
	usage.Daily
	Cents int64
}

// View lists sandboxes. *catalog.View implements it.
type View interface {
	Sync(ctx context.Context) error
	Sandboxes(keep func(*sandbox.State) bool) []sandbox.State
}

// Config configures the surface. Meter and View are required.
type Config struct {
	Meter Meter
	View  View
	Now   func() time.Time // default time.Now
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
func total(days []Day, first, last usage.Day) (sum usage.Counters, seconds, cents int64) {
	for i := range days {
		if d := &days[i]; first <= d.Day && d.Day <= last {
			sum = sum.Add(d.Counters)
			seconds += d.Seconds()
			cents += d.Cents
		}
	}
	return sum, seconds, cents
}

// dollars returns cents as JSON has them: 2.34. Such a number prints as it is.
func dollars(cents int64) float64 { return float64(cents) / 100 }
