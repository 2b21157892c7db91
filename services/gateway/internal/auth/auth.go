// Package auth finds out who asks. An API key stands for its tenant; a
// sandbox's access token stands for that sandbox only, and only on the data
// plane.
package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Keys knows the API keys: a *events.View.
type Keys interface {
	Key(sha256 [32]byte) (events.Key, bool)
}

// Tokens knows the sandboxes' tokens: a *core.Core.
type Tokens interface {
	Signer
	Bearer(ctx context.Context, id sandbox.ID, token string) (core.Principal, error)
	Visitor(ctx context.Context, id sandbox.ID, traffic string) (core.Principal, error)
	VolumeBearer(ctx context.Context, id sandbox.VolumeID, token string) (core.Principal, error)
}

// The texts of a 401. The first is envd's, which clients compare.
const (
	msgToken  = "unauthorized access, please provide a valid access token or method signing if supported"
	msgVolume = "unauthorized: a valid volume token is required (Authorization: Bearer)"
	msgKey    = "unauthorized: a valid API key is required (X-API-KEY or Authorization: Bearer)"
)

type local struct{}

// From gives who asks: what the middleware found. Without the middleware it is
// nobody, who may nothing.
func From(c *fiber.Ctx) core.Principal {
	p, _ := c.Locals(local{}).(core.Principal) //nolint:errcheck // nobody
	return p
}

// Set puts in who asks, as the middleware does; tests of surfaces use it.
func Set(c *fiber.Ctx, p core.Principal) { c.Locals(local{}, p) }

// New gives the middleware: it goes on only for who may ask, and answers 401
// otherwise.
func New(keys Keys, tokens Tokens) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if p, ok := byKey(c, keys); ok {
			Set(c, p)
			return c.Next()
		}
		if first(c.Path()) == VolumePath {
			return forVolume(c, tokens)
		}
		if !DataPlane(c.Path()) && !envdMetrics(c) {
			return refuse(c, msgKey)
		}
		by := byToken
		if c.Path() == FilesPath {
			by = byFile
		}
		p, err := by(c, tokens)
		switch {
		case err == nil:
			Set(c, p)
			return c.Next()
		case kind.Is(err, kind.Unauthenticated) && c.Path() == FilesPath:
			return refuse(c, kind.Message(err))
		case kind.Is(err, kind.Unauthenticated):
			return refuse(c, msgToken)
		}
		return err
	}
}

// VolumePath is the first part of the paths that a volume's token opens; its second
// is the volume.
const VolumePath = "volumecontent"

// forVolume goes on for the bearer of the token of the volume that the path names.
func forVolume(c *fiber.Ctx, tokens Tokens) error {
	_, rest, _ := strings.Cut(strings.TrimPrefix(c.Path(), "/"), "/")
	name, _, _ := strings.Cut(rest, "/")
	id, err := sandbox.ParseVolumeID(name)
	var p core.Principal
	if err == nil {
		p, err = tokens.VolumeBearer(c.UserContext(), id, bearer(c))
	}
	switch {
	case kind.Is(err, kind.Unauthenticated) || name == "" || kind.Is(err, kind.NotFound) && bearer(c) == "":
		return httperr.WriteNamed(c, http.StatusUnauthorized, kind.New(kind.Unauthenticated, "authenticate", "", msgVolume))
	case err != nil:
		return httperr.WriteNamed(c, httperr.Status(kind.Of(err)), err)
	}
	Set(c, p)
	return c.Next()
}

// DataPlane reports whether a path is one of those that a sandbox's token opens.
func DataPlane(path string) bool {
	switch first(path) {
	case "process.Process", "filesystem.Filesystem", "commands", "execute", "contexts", "files", "envs":
		return true
	}
	return false
}

// envdMetrics reports whether a request is for a sandbox's metrics: those of the
// service have the same path.
func envdMetrics(c *fiber.Ctx) bool {
	return c.Path() == "/metrics" && route.Of(c).Named != ""
}

// first is the first part of a path.
func first(path string) string {
	f, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return f
}

// byKey looks the request's API key up by its hash: how long a look-up takes
// tells nothing of a key. A key in the query is for what cannot set headers,
// and only reads.
func byKey(c *fiber.Ctx, keys Keys) (core.Principal, bool) {
	for _, k := range [...]string{c.Get("X-Api-Key"), bearer(c), queryKey(c)} {
		if k == "" {
			continue
		}
		if key, ok := keys.Key(sha256.Sum256([]byte(k))); ok {
			c.Locals(known{}, k)
			return core.Principal{Tenant: key.Tenant}, true
		}
	}
	return core.Principal{}, false
}

type known struct{}

// Shown gives the API key by which the middleware found out who asks; empty: it was by
// something else. It shares memory with the request.
func Shown(c *fiber.Ctx) string {
	k, _ := c.Locals(known{}).(string) //nolint:errcheck // there is none
	return k
}

func bearer(c *fiber.Ctx) string {
	const scheme = "bearer "
	if h := c.Get(fiber.HeaderAuthorization); len(h) > len(scheme) && strings.EqualFold(h[:len(scheme)], scheme) {
		return strings.TrimSpace(h[len(scheme):])
	}
	return ""
}

func queryKey(c *fiber.Ctx) string {
	if c.Method() != fiber.MethodGet {
		return ""
	}
	return c.Query("api_key")
}

// byToken asks for the sandbox the request is for. Where it is gone whoever asks is
// nobody: what comes next says so in its own words.
func byToken(c *fiber.Ctx, tokens Tokens) (core.Principal, error) {
	t := route.Of(c)
	switch {
	case t.Named == "":
		return core.Principal{}, kind.New(kind.Unauthenticated, "authenticate", "", "no sandbox named")
	case t.Sandbox == "": // there can be none
		return core.Principal{}, nil
	}
	var p core.Principal
	var err error
	if token := c.Get("X-Access-Token"); token == "" && first(c.Path()) == "contexts" { // where SDKs send none (WIRE-E2B 3.5)
		p, err = tokens.Visitor(c.UserContext(), t.Sandbox, c.Get(route.HeaderTraffic))
	} else {
		p, err = tokens.Bearer(c.UserContext(), t.Sandbox, token)
	}
	if kind.Is(err, kind.NotFound) {
		return core.Principal{}, nil
	}
	return p, err
}

func refuse(c *fiber.Ctx, msg string) error {
	raw, err := json.Marshal(httperr.Body{Code: http.StatusUnauthorized, Message: msg})
	if err != nil {
		return err
	}
	c.Status(http.StatusUnauthorized).Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	return c.Send(raw)
}
