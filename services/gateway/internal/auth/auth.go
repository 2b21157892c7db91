// Package auth authenticates requests. An API key authenticates its tenant; a sandbox's
// access token authenticates for that sandbox only, and only on the data plane.
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

// Keys looks up API keys. A *events.View implements it.
type Keys interface {
	Key(sha256 [32]byte) (events.Key, bool)
}

// Tokens checks the tokens of sandboxes and volumes. A *lifecycle.Lifecycle with a *storage.Storage implements it.
type Tokens interface {
	Signer
	Bearer(ctx context.Context, id sandbox.ID, token string) (core.Principal, error)
	IngressClient(ctx context.Context, id sandbox.ID, traffic string) (core.Principal, error)
	VolumeBearer(ctx context.Context, id sandbox.VolumeID, token string) (core.Principal, error)
}

// Messages of a 401. The first is envd's, which clients compare.
const (
	msgToken  = "unauthorized access, please provide a valid access token or method signing if supported"
	msgVolume = "unauthorized: a valid volume token is required (Authorization: Bearer)"
	msgKey    = "unauthorized: a valid API key is required (X-API-KEY or Authorization: Bearer)"
)

type local struct{}

// From returns the principal that the middleware found. Without the middleware it returns
// the zero Principal, which may access nothing.
func From(c *fiber.Ctx) core.Principal {
	p, _ := c.Locals(local{}).(core.Principal)
	return p
}

// Set sets the principal, as the middleware does; tests of surfaces use it.
func Set(c *fiber.Ctx, p core.Principal) { c.Locals(local{}, p) }

// New returns middleware that authenticates the request or responds 401.
func New(keys Keys, tokens Tokens) fiber.Handler {
	return func(c *fiber.Ctx) error {
		if p, ok := byKey(c, keys); ok {
			Set(c, p)
			return c.Next()
		}
		if firstSegment(c.Path()) == VolumePath {
			return forVolume(c, tokens)
		}
		if !DataPlane(c.Path()) && !envdMetrics(c) {
			return unauthorized(c, msgKey)
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
			return unauthorized(c, kind.Message(err))
		case kind.Is(err, kind.Unauthenticated):
			return unauthorized(c, msgToken)
		}
		return err
	}
}

// VolumePath is the first segment of the paths that accept a volume's token; the second
// identifies the volume.
const VolumePath = "volumecontent"

// forVolume authenticates a request with the token of the volume in the path.
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

// DataPlane reports whether a path accepts a sandbox's token.
func DataPlane(path string) bool {
	switch firstSegment(path) {
	case "process.Process", "filesystem.Filesystem", "commands", "execute", "contexts", "files", "envs":
		return true
	}
	return false
}

// envdMetrics reports whether a request is for a sandbox's metrics, which have the same path
// as the service's.
func envdMetrics(c *fiber.Ctx) bool {
	return c.Path() == "/metrics" && route.Of(c).Named != ""
}

func firstSegment(path string) string {
	f, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return f
}

// byKey looks up the request's API key by its hash, so that the time of the look-up discloses
// nothing about a key. A key in the query is for clients that cannot set headers, and only
// permits reading.
func byKey(c *fiber.Ctx, keys Keys) (core.Principal, bool) {
	for _, k := range [...]string{c.Get("X-Api-Key"), bearer(c), queryKey(c)} {
		if k == "" {
			continue
		}
		if key, ok := keys.Key(sha256.Sum256([]byte(k))); ok {
			c.Locals(apiKey{}, k)
			return core.Principal{Tenant: key.Tenant}, true
		}
	}
	return core.Principal{}, false
}

type apiKey struct{}

// Shown returns the API key that authenticated the request; empty if something else did. It
// shares memory with the request.
func Shown(c *fiber.Ctx) string {
	k, _ := c.Locals(apiKey{}).(string)
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

// byToken authenticates for the sandbox of the request. If that does not exist it returns the
// zero Principal: the surface responds with its own error.
func byToken(c *fiber.Ctx, tokens Tokens) (core.Principal, error) {
	t := route.Of(c)
	switch {
	case t.Named == "":
		return core.Principal{}, kind.New(kind.Unauthenticated, "authenticate", "", "no sandbox named")
	case t.Sandbox == "": // no valid id
		return core.Principal{}, nil
	}
	var p core.Principal
	var err error
	if token := c.Get("X-Access-Token"); token == "" && firstSegment(c.Path()) == "contexts" { // E2B's SDKs send no token there
		p, err = tokens.IngressClient(c.UserContext(), t.Sandbox, c.Get(route.HeaderTraffic))
	} else {
		p, err = tokens.Bearer(c.UserContext(), t.Sandbox, token)
	}
	if kind.Is(err, kind.NotFound) {
		return core.Principal{}, nil
	}
	return p, err
}

func unauthorized(c *fiber.Ctx, msg string) error {
	raw, err := json.Marshal(httperr.Body{Code: http.StatusUnauthorized, Message: msg})
	if err != nil {
		return err
	}
	c.Status(http.StatusUnauthorized).Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	return c.Send(raw)
}
