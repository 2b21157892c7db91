package teams

import (
	"context"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/accounts"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// Accounts are the teams' keys and loads.
type Accounts interface {
	Keys(ctx context.Context, p core.Principal) ([]catalog.Key, error)
	IssueKey(ctx context.Context, p core.Principal, name string) (string, catalog.Key, error)
	IssueKeyPair(ctx context.Context, p core.Principal, name string) (string, catalog.Key, error)
	RevokeKey(ctx context.Context, p core.Principal, id, asking string) error
	Load(ctx context.Context, p core.Principal, since, until time.Time, most int) ([]accounts.Load, error)
}

// Handler serves teams and API keys.
type Handler struct{ accounts Accounts }

// New returns a handler.
func New(a Accounts) *Handler { return &Handler{a} }

const (
	maxLoads    = 500 // per response
	defaultLoad = 24 * time.Hour
)

// teamBody is E2B's Team.
type teamBody struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	APIKey    string `json:"apiKey"`
	IsDefault bool   `json:"isDefault"`
}

// List returns the principal's team: there is only one. Its key is that of the request, as
// no other key is stored in plain text.
func (h *Handler) List(c *fiber.Ctx) error {
	team := auth.From(c).Team()
	return c.JSON([]teamBody{{TeamID: team, Name: team, APIKey: strings.Clone(auth.Shown(c)), IsDefault: true}})
}

// teamMetric is E2B's TeamMetric.
type teamMetric struct {
	Timestamp           time.Time `json:"timestamp"`
	TimestampUnix       int64     `json:"timestampUnix"`
	ConcurrentSandboxes int       `json:"concurrentSandboxes"`
	SandboxStartRate    float64   `json:"sandboxStartRate"`
}

// loads returns the loads of the team in the path between start and end.
func (h *Handler) loads(c *fiber.Ctx) ([]accounts.Load, error) {
	p := auth.From(c)
	if team, err := wire.PathName(c); err != nil || team != p.Team() {
		return nil, kind.New(kind.Denied, "read team", "", "the key belongs to another team")
	}
	since, err := wire.UnixSeconds(c, "start")
	if err != nil {
		return nil, err
	}
	until, err := wire.UnixSeconds(c, "end")
	if err != nil {
		return nil, err
	}
	if now := time.Now(); until.IsZero() || until.After(now) {
		until = now.Truncate(time.Second).Add(time.Second)
	}
	if since.IsZero() {
		since = until.Add(-defaultLoad)
	}
	if until.Before(since) {
		return nil, wire.Invalid("end is before start")
	}
	return h.accounts.Load(c.UserContext(), p, since, until, maxLoads)
}

// Metrics returns the loads of the team in the path.
func (h *Handler) Metrics(c *fiber.Ctx) error {
	all, err := h.loads(c)
	if err != nil {
		return err
	}
	out := make([]teamMetric, len(all))
	for i, l := range all {
		out[i] = teamMetric{Timestamp: l.Begin.UTC(), TimestampUnix: l.Begin.Unix(), ConcurrentSandboxes: l.Concurrent, SandboxStartRate: l.Rate}
	}
	return c.JSON(out)
}

// maxTeamMetric is E2B's MaxTeamMetric.
type maxTeamMetric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	Value         float64   `json:"value"`
}

// Maximum returns the maximum of one metric, and when it first occurred.
func (h *Handler) Maximum(c *fiber.Ctx) error {
	of := map[string]func(*accounts.Load) float64{
		"concurrent_sandboxes": func(l *accounts.Load) float64 { return float64(l.Concurrent) },
		"sandbox_start_rate":   func(l *accounts.Load) float64 { return l.Rate },
	}[c.Query("metric")]
	if of == nil {
		return wire.Invalid("metric must be concurrent_sandboxes or sandbox_start_rate")
	}
	all, err := h.loads(c)
	if err != nil {
		return err
	}
	var most accounts.Load
	for i := range all {
		if i == 0 || of(&all[i]) > of(&most) {
			most = all[i]
		}
	}
	out := maxTeamMetric{Value: of(&most)}
	if len(all) > 0 {
		out.Timestamp, out.TimestampUnix = most.Begin.UTC(), most.Begin.Unix()
	}
	return c.JSON(out)
}
