package sandboxes

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// gateway is the part of the operations that the surface uses, implemented by record.Gateway.
type gateway interface {
	Sync(ctx context.Context) error
	Lookup(ctx context.Context, p core.Principal, id sandbox.ID) (sandbox.State, error)
	Sandboxes(p core.Principal, keep func(*sandbox.State) bool) []sandbox.State
	DialPort(ctx context.Context, id sandbox.ID, port int) (*mux.Stream, error)
	Wake(ctx context.Context, id sandbox.ID) (bool, error)
}

// Handler implements the surface. It is safe for concurrent use.
type Handler struct {
	core    gateway
	streams *stream.Streams
}

// New returns the surface on c and streams.
func New(g record.Gateway, streams *stream.Streams) *Handler {
	return &Handler{core: g, streams: streams}
}

// Register adds the routes. The principal must be set before ([auth.From]).
func (h *Handler) Register(r fiber.Router) {
	r.Get("/v1/store/sandboxes", h.list)
	r.Get("/v1/store/sandboxes/:id", h.get)
	r.Get("/v1/store/sandboxes/:id/ports/:port", h.tunnel)
}

// list responds with the principal's sandboxes, newest first: those in the given states (by
// default all) that have all of the given metadata; with a limit, the newest of them.
func (h *Handler) list(c *fiber.Ctx) error {
	limit, err := record.Limit(c)
	if err != nil {
		return err
	}
	wanted, err := parseStates(c.Query("state"))
	if err != nil {
		return err
	}
	metadata, err := parseMetadata(c.Context().QueryArgs().PeekMulti("metadata"))
	if err != nil {
		return err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	if err := h.core.Sync(ctx); err != nil {
		return err
	}
	found := h.core.Sandboxes(auth.From(c), func(st *sandbox.State) bool {
		return st.Request.Build == "" && slices.Contains(wanted, stateOf(st)) && has(st.Request.Metadata, metadata)
	})
	if limit > 0 {
		found = found[:min(len(found), limit)]
	}
	out := make([]body, len(found))
	for i := range found {
		out[i] = bodyOf(&found[i])
	}
	return c.JSON(out)
}

// parseStates parses comma-separated states; empty means all.
func parseStates(s string) ([]string, error) {
	if s == "" {
		return states(), nil
	}
	list := strings.Split(s, ",")
	for _, one := range list {
		if !slices.Contains(states(), one) {
			return nil, invalid("state must be one of " + strings.Join(states(), ", "))
		}
	}
	return list, nil
}

// parseMetadata parses parameters of the form NAME=VALUE.
func parseMetadata(given [][]byte) (map[string]string, error) {
	out := make(map[string]string, len(given))
	for _, raw := range given {
		name, value, ok := strings.Cut(string(raw), "=")
		if !ok || name == "" {
			return nil, invalid("metadata must be NAME=VALUE")
		}
		out[name] = value
	}
	return out, nil
}

func has(metadata, wanted map[string]string) bool {
	for name, value := range wanted {
		if got, ok := metadata[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// get responds with one sandbox.
func (h *Handler) get(c *fiber.Ctx) error {
	st, err := h.find(c)
	if err != nil {
		return err
	}
	return c.JSON(bodyOf(&st))
}

func (h *Handler) find(c *fiber.Ctx) (sandbox.State, error) {
	id, err := route.Parse(c.Params("id"))
	if err != nil {
		return sandbox.State{}, err
	}
	ctx, cancel := record.Context(c)
	defer cancel()
	return h.core.Lookup(ctx, auth.From(c), id)
}

// tunnel switches the connection to a TCP connection to a port of a sandbox.
func (h *Handler) tunnel(c *fiber.Ctx) error {
	port, err := strconv.ParseUint(c.Params("port"), 10, 16)
	if err != nil || port == 0 {
		return invalid("the port must be a number from 1 to 65535")
	}
	st, err := h.find(c)
	if err != nil {
		return err
	}
	if !strings.EqualFold(c.Get(fiber.HeaderUpgrade), protocol) {
		return fiber.NewError(fiber.StatusUpgradeRequired, "a tunnel requires the headers Connection: Upgrade and Upgrade: "+protocol)
	}
	to, err := h.core.DialPort(c.UserContext(), st.ID, int(port))
	if kind.Is(err, kind.Precondition) {
		return fiber.NewError(fiber.StatusBadGateway, "nothing listens on port "+strconv.FormatUint(port, 10)+" of the sandbox")
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.UserContext()))
	wake := func() { h.core.Wake(ctx, st.ID) } //nolint:errcheck // the write reports the failure
	head := &http.Response{Header: http.Header{"Upgrade": {protocol}}}
	h.streams.Switch(c, head, &tunnel{Stream: to, wake: wake}, cancel)
	return nil
}

// protocol is the protocol to which a connection is switched.
const protocol = "tcp"

// tunnel is a connection to a port. Writing to it resumes a paused sandbox, as all
// traffic does.
type tunnel struct {
	*mux.Stream
	wake func()
}

// Write resumes the sandbox if it is paused and has autoResume, and writes.
func (t *tunnel) Write(b []byte) (int, error) {
	t.wake()
	return t.Stream.Write(b)
}

func invalid(msg string) error { return kind.New(kind.Invalid, "sandboxes", "", msg) }
