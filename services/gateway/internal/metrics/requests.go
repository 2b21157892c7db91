package metrics

import (
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/services/gateway/internal/auth"
)

const (
	// other is the label value for what has no series of its own.
	other = "other"
	// maxTenants is how many tenants have series of their own: the first ones that a gateway
	// serves after its start.
	maxTenants = 100
)

func newRoutes() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_http_route_requests_total", Help: "Requests answered by this gateway, by the pattern of their route; other is a path without a route.",
	}, []string{"method", "route", "class"})
}

// tenants counts requests by tenant.
type tenants struct {
	counts *prometheus.CounterVec

	mu    *sync.RWMutex
	known map[string]string // tenants with series of their own; the values are copies of the keys
}

func newTenants() tenants {
	return tenants{known: make(map[string]string), mu: new(sync.RWMutex), counts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_tenant_requests_total", Help: "Authenticated requests answered by this gateway, by tenant; other is the sum of those beyond the first 100 tenants.",
	}, []string{"tenant", "class"})}
}

// label returns the value of the label for a tenant. It does not refer to the request.
func (t *tenants) label(tenant string) string {
	t.mu.RLock()
	known, full := t.known[tenant], len(t.known) >= maxTenants
	t.mu.RUnlock()
	switch {
	case known != "":
		return known
	case full:
		return other
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known = t.known[tenant]; known == "" {
		if len(t.known) >= maxTenants {
			return other
		}
		known = strings.Clone(tenant)
		t.known[known] = known
	}
	return known
}

// countRoute counts a request of a status class by its route and its tenant. The routes and
// methods of an app are a fixed set.
func (m *Metrics) countRoute(c *fiber.Ctx, class string) {
	// After the last handler, the route is the one that served the request. A request that no
	// handler served has the route of the last middleware, which has the path of a group.
	pattern, method := other, other
	if route := c.Route(); route != nil && len(route.Path) > 1 && route.Method == c.Method() {
		pattern, method = route.Path, route.Method
	}
	m.routes.WithLabelValues(method, pattern, class).Inc()
	if tenant := auth.From(c).Tenant; tenant != "" {
		m.tenants.counts.WithLabelValues(m.tenants.label(tenant), class).Inc()
	}
}
