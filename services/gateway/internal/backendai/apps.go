package backendai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/backendai/apps"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// Ports connects to the ports of sandboxes.
type Ports interface {
	// DialPort returns Precondition if nothing listens on the port.
	DialPort(ctx context.Context, id sandbox.ID, port int) (*mux.Stream, error)
}

// tunnelWriteTimeout is how long the client of a tunnel may read nothing. It may wait for its own
// peer.
const tunnelWriteTimeout = 5 * time.Minute

// services serves the services of sessions.
type services struct{ h *Handler }

// register adds the routes under those of a session's streams and of the session.
func (a services) register(r fiber.Router, streams, one string) {
	r.Get(streams+"/apps", a.list)
	r.Get(streams+"/tcpproxy", a.tunnel)
	r.Get(streams+"/httpproxy", a.tunnel)
	r.Post(one+"/start-service", a.start)
	r.Post(one+"/shutdown-service", a.shutdown)
}

// list responds with the services of a session.
func (a services) list(c *fiber.Ctx) error {
	_, st, err := a.h.found(c)
	if err != nil {
		return err
	}
	return c.JSON(session.Ports(&st))
}

// find returns the service with a name and, unless it is empty, a port. The environment and the
// arguments of services are the template's.
func (a services) find(c *fiber.Ctx, name, port, envs, arguments string) (*app, error) {
	p, st, err := a.h.found(c)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, badParams("app is required")
	}
	s, err := session.Service(&st, name)
	if err != nil {
		return nil, err
	}
	if port != "" {
		n, err := strconv.Atoi(port)
		switch {
		case err != nil || n < template.MinServicePort || n > 65535:
			return nil, badParams("port: must be a number between 1024 and 65535")
		case n != s.Port:
			return nil, kind.Coded(kind.NotFound, "find app", "", session.AppNotFound, "The app service does not have this port.")
		}
	}
	for _, v := range [...]string{envs, arguments} {
		if v != "" && v != "{}" && v != "null" {
			return nil, badParams("envs and arguments: the service accepts none")
		}
	}
	return &app{h: a.h, p: p, st: st, service: s}, nil
}

// tunnel serves a connection to a service.
func (a services) tunnel(c *fiber.Ctx) error {
	one, err := a.find(c, strings.Clone(c.Query("app")), c.Query("port"), c.Query("envs"), c.Query("arguments"))
	if err != nil {
		return err
	}
	budget := a.h.cfg.Streams.Budget(one.p.Tenant)
	return a.h.tunnels.Upgrade(c, one.p.Tenant, websocket.Handler{
		Serve: func(ctx context.Context, conn *websocket.Conn) error {
			t := apps.Tunnel{Conn: conn, Budget: budget, Slog: a.h.cfg.Slog, Open: one.open, Over: one.over, Active: func() { one.touch(ctx) }}
			t.Serve(ctx)
			return nil
		},
	})
}

// request is the body of a request about a service.
type request struct {
	App         string          `json:"app"`
	Service     string          `json:"service_name"`
	ServiceName string          `json:"serviceName"`
	Port        json.RawMessage `json:"port"`
	Envs        json.RawMessage `json:"envs"`
	Arguments   json.RawMessage `json:"arguments"`
}

// named returns the service that a request names in its body or its query.
func (a services) named(c *fiber.Ctx) (*app, error) {
	raw, err := record.Body(c)
	if err != nil {
		return nil, err
	}
	var r request
	if len(raw) > 0 && json.Unmarshal(raw, &r) != nil {
		return nil, badParams("the body must be a JSON object with the name of a service")
	}
	names := []string{r.App, r.Service, r.ServiceName, strings.Clone(c.Query("app")), strings.Clone(c.Query("service_name"))}
	names = append(slices.DeleteFunc(names, func(s string) bool { return s == "" }), "")
	port := strings.Trim(string(r.Port), `"`)
	if port == "null" {
		port = ""
	}
	return a.find(c, names[0], port, strings.Trim(string(r.Envs), `"`), strings.Trim(string(r.Arguments), `"`))
}

// start starts a service, and responds with the address of its tunnels: the gateway's.
func (a services) start(c *fiber.Ctx) error {
	one, err := a.named(c)
	if err != nil {
		return err
	}
	s, err := one.open(c.UserContext())
	if err != nil {
		return err
	}
	s.Close()
	return c.JSON(fiber.Map{"token": session.UUID(one.st.ID), "wsproxy_addr": c.BaseURL()})
}

// shutdown ends the processes of a service.
func (a services) shutdown(c *fiber.Ctx) error {
	one, err := a.named(c)
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	active, err := one.processes(ctx, (*process.Summary).Active)
	if err != nil {
		return err
	}
	for i := range active {
		if err := one.h.cfg.Operations.Signal(ctx, auth.From(c), active[i].ID, sigKill); err != nil && !kind.Is(err, kind.NotFound) {
			return err
		}
	}
	return c.SendStatus(http.StatusNoContent)
}
