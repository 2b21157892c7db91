package gateway

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/metrics"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// assembled returns a gateway that does not serve.
func assembled(t *testing.T) *server {
	t.Helper()
	log := eventstest.Open(t, eventstest.Start(t))
	cfg := Config{Log: log, View: eventstest.View(t, log)}
	setDefaults(&cfg)
	latencies := metrics.NewLatencies()
	ops := operations.New(core.Config{Log: log, View: cfg.View, Latencies: latencies.Observers(), Slog: cfg.Slog})
	t.Cleanup(ops.Close)
	return newServer(&cfg, ops, latencies, loopback(&net.TCPAddr{}))
}

// samples returns paths that a route matches: each parameter is any name, or one that a row of
// the table has in the same place.
func samples(route string) []string {
	rows := make([][]string, 0, len(family.Paths()))
	for _, p := range family.Paths() {
		rows = append(rows, strings.Split(p, "/"))
	}
	all := []string{""}
	for i, segment := range strings.Split(strings.Trim(route, "/"), "/") {
		names := []string{segment}
		if strings.HasPrefix(segment, ":") || strings.HasPrefix(segment, "*") {
			names = []string{"x"}
			for _, r := range rows {
				if i+1 < len(r) && r[i+1] != "$" && r[i+1] != "*" && !slices.Contains(names, r[i+1]) {
					names = append(names, r[i+1])
				}
			}
		}
		var next []string
		for _, before := range all {
			for _, n := range names {
				next = append(next, before+"/"+n)
			}
		}
		all = next
	}
	return all
}

// outside returns a path that a route matches and that belongs to another family.
func outside(name family.Name, route string) (path string, bad bool) {
	for _, s := range samples(route) {
		upgrade := name == family.Codex // its routes serve WebSocket only
		if family.Of(family.Request{Path: s, Upgrade: upgrade}).Family != name {
			return s, true
		}
	}
	return "", false
}

// Every route is registered for a family, and has no path of another one.
func TestRoutesStayWithinTheirFamily(t *testing.T) {
	s := assembled(t)
	known := map[string]bool{}
	for _, x := range s.surfaces() {
		app := fiber.New()
		x.register(app)
		for _, r := range app.GetRoutes(true) {
			known[r.Method+" "+r.Path] = true
			if path, bad := outside(x.family, r.Path); bad {
				t.Errorf("%s %s of %s has the path %s of another family", r.Method, r.Path, x.family, path)
			}
		}
	}
	for _, r := range s.app.GetRoutes(true) {
		if !known[r.Method+" "+r.Path] {
			t.Errorf("%s %s is registered for no family", r.Method, r.Path)
		}
	}
	if len(known) < 100 {
		t.Errorf("only %d routes", len(known))
	}
}

func TestOutsideFindsPathsOfAnotherFamily(t *testing.T) {
	for route, want := range map[string]string{
		"/v1/templates": "/v1/templates", "/v1/templates/:name": "/v1/templates/x", "/v1/:any": "/v1/api-keys", "/:any": "/x", "/v1/hosts/:name": "",
		"/v1/*": "/v1/api-keys",
	} {
		if path, _ := outside(family.Millrace, route); path != want {
			t.Errorf("%s: %q, want %q", route, path, want)
		}
	}
}

// Only these routes are public.
func TestPublicRoutes(t *testing.T) {
	want := []string{"/", "/.well-known/jwks.json", "/.well-known/openid-configuration", "/console/*", "/docs", "/health", "/livez", "/openapi.json", "/openapi.yaml", "/readyz", "/v1/auth/login", "/v1/auth/register", "/v1/auth/verify-otp", "/v1/billing/webhook", "/v1/tenants", "/v1/tenants/verify", "/v1/workspace-files/:token", "/v4", "/v5", "/v6", "/v7", "/v8", "/v9"}
	var got []string
	for _, r := range assembled(t).app.GetRoutes(true) {
		for _, path := range samples(r.Path) {
			if family.Of(family.Request{Path: path}).Credentials.Has(family.Public) && !slices.Contains(got, r.Path) {
				got = append(got, r.Path)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("public routes:\n%q, want\n%q", got, want)
	}
}
