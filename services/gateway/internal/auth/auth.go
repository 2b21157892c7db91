// Package auth authenticates requests. An API key authenticates its tenant; a sandbox's
// access token authenticates for that sandbox only. The family of a request determines which
// credentials are accepted, and where in the request.
package auth

import (
	"context"
	"crypto/hmac"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// Keys looks up API keys. *accounts.Accounts implements it.
type Keys interface {
	Key(ctx context.Context, secret string) (catalog.Key, bool)
}

// Users checks the tokens of users. *accounts.Users implements it.
type Users interface {
	UserToken(ctx context.Context, token string) (core.Principal, bool)
}

// Tokens checks the tokens of sandboxes and volumes. A *lifecycle.Lifecycle with a *storage.Storage implements it.
type Tokens interface {
	Signer
	Bearer(ctx context.Context, id sandbox.ID, token string) (core.Principal, error)
	IngressClient(ctx context.Context, id sandbox.ID, traffic string) (core.Principal, error)
	VolumeBearer(ctx context.Context, id sandbox.VolumeID, token string) (core.Principal, error)
}

// HeaderShare is the header with the token of a link for onlookers.
const HeaderShare = "Millrace-Share"

// Shares checks the tokens of links for onlookers. *shares.Shares implements it.
type Shares interface {
	// Onlooker returns the principal of a token, and a context that ends with the link.
	Onlooker(ctx context.Context, token string) (core.Principal, context.Context, error)
}

// Messages of a 401. The first is envd's, which clients compare.
const (
	msgToken  = "unauthorized access, please provide a valid access token or method signing if supported"
	msgVolume = "unauthorized: a valid volume token is required (Authorization: Bearer)"
	msgKey    = "unauthorized: a valid API key is required (X-API-KEY or Authorization: Bearer)"
	msgUser   = "unauthorized: a valid token of a user is required (Authorization: Bearer)"
	msgBearer = "unauthorized: a valid API key or token of the sandbox is required (Authorization: Bearer, or the token in ?token=)"
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

// New returns middleware that authenticates the request with a credential of its family or
// responds 401. The handler of a signed link runs without a principal.
func New(keys Keys, users Users, tokens Tokens, shares Shares) fiber.Handler {
	return func(c *fiber.Ctx) error {
		accepted := route.Part(c).Credentials
		if accepted.Has(family.Public | family.PairSignature | family.SessionToken) {
			return c.Next()
		}
		if token := c.Get(HeaderShare); token != "" && accepted.Has(family.ShareHeader) {
			return byShare(c, token, shares)
		}
		p, ok := byKey(c, accepted, keys)
		if !ok {
			p, ok = byUser(c, accepted, users)
		}
		if !ok && accepted.Has(family.LinkSignature) && c.Method() == fiber.MethodPut && c.Query("signature") != "" {
			return c.Next()
		}
		if !ok {
			var err error
			p, err = byToken(c, accepted, tokens)
			switch {
			case kind.Is(err, kind.Unauthenticated):
				return unauthorized(c, kind.Message(err))
			case err != nil:
				return err
			}
		}
		Set(c, p)
		return c.Next()
	}
}

// byShare authenticates with the token of a link, which permits reading. Streams end with the link.
// What the link is not for does not exist.
func byShare(c *fiber.Ctx, token string, shares Shares) error {
	if c.Method() != fiber.MethodGet && c.Method() != fiber.MethodHead {
		return unauthorized(c, msgKey)
	}
	p, lifetime, err := shares.Onlooker(c.UserContext(), token)
	switch {
	case kind.Is(err, kind.Unauthenticated):
		return unauthorized(c, kind.Message(err))
	case err != nil:
		return err
	}
	Set(c, p)
	httpconn.Limit(c, lifetime)
	switch name := segment(c, 2); segment(c, 1) {
	case "processes":
		id, err := process.ParseID(name)
		if err != nil || id.Sandbox() != p.Sandbox || !p.MayRead(id) {
			return kind.New(kind.NotFound, "authorize", "", "process not found")
		}
	case "timeline":
		if name != string(p.Sandbox) || p.Process != "" {
			return core.NoSandbox(p.Sandbox)
		}
	}
	return c.Next()
}

// byToken authenticates with the most specific of the accepted tokens. Its error is
// Unauthenticated, with the text for the client, if there is no valid one.
func byToken(c *fiber.Ctx, accepted family.Credentials, tokens Tokens) (core.Principal, error) {
	switch {
	case accepted.Has(family.VolumeBearer):
		return byVolume(c, tokens)
	case accepted.Has(family.FileSignature):
		return byFile(c, tokens)
	case accepted.Has(family.SandboxHeader):
		return byHeader(c, accepted.Has(family.TrafficHeader), tokens)
	case accepted.Has(family.SandboxBearer | family.SandboxQuery):
		return byBearer(c, accepted, tokens)
	case accepted.Has(family.UserBearer):
		return core.Principal{}, unauthenticated(msgUser)
	}
	return core.Principal{}, unauthenticated(msgKey)
}

// byVolume authenticates with the token of the volume in the path's second segment.
func byVolume(c *fiber.Ctx, tokens Tokens) (core.Principal, error) {
	name, token := segment(c, 1), bearer(c)
	id, err := sandbox.ParseVolumeID(name)
	var p core.Principal
	if err == nil {
		p, err = tokens.VolumeBearer(c.UserContext(), id, token)
	}
	if kind.Is(err, kind.Unauthenticated) || name == "" || kind.Is(err, kind.NotFound) && token == "" {
		return p, unauthenticated(msgVolume)
	}
	return p, err
}

// segment returns a segment of the path; the first is 0.
func segment(c *fiber.Ctx, n int) string {
	s, rest := "", strings.TrimPrefix(c.Path(), "/")
	for range n + 1 {
		s, rest, _ = strings.Cut(rest, "/")
	}
	return s
}

// byKey looks up the request's API key by its hash, so that the time of the look-up discloses
// nothing about a key. A key in the query is for clients that cannot set headers, and only
// permits reading.
func byKey(c *fiber.Ctx, accepted family.Credentials, keys Keys) (core.Principal, bool) {
	for _, place := range [...]struct {
		credential family.Credentials
		read       func(*fiber.Ctx) string
	}{{family.KeyHeader, headerKey}, {family.KeyBearer, bearer}, {family.KeyQuery, queryKey}} {
		if !accepted.Has(place.credential) {
			continue
		}
		k := place.read(c)
		if k == "" {
			continue
		}
		if key, ok := keys.Key(c.UserContext(), k); ok {
			c.Locals(apiKey{}, k)
			return core.Principal{Tenant: key.Tenant}, true
		}
	}
	return core.Principal{}, false
}

// byUser authenticates with a user's token.
func byUser(c *fiber.Ctx, accepted family.Credentials, users Users) (core.Principal, bool) {
	reads := c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead
	if !accepted.Has(family.UserBearer) && !(accepted.Has(family.UserRead) && reads) {
		return core.Principal{}, false
	}
	return users.UserToken(c.UserContext(), bearer(c))
}

type apiKey struct{}

// Shown returns the API key that authenticated the request; empty if something else did. It
// shares memory with the request.
func Shown(c *fiber.Ctx) string {
	k, _ := c.Locals(apiKey{}).(string)
	return k
}

func headerKey(c *fiber.Ctx) string { return c.Get("X-Api-Key") }

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

// byHeader authenticates for the sandbox that the request names, or without its token with the
// one for its ports. If the sandbox does not exist it returns the zero Principal: the surface
// responds with its own error.
func byHeader(c *fiber.Ctx, traffic bool, tokens Tokens) (core.Principal, error) {
	t := route.Of(c)
	switch {
	case t.Named == "":
		return core.Principal{}, unauthenticated(msgToken)
	case t.Sandbox == "": // no valid id
		return core.Principal{}, nil
	}
	var p core.Principal
	var err error
	if token := c.Get("X-Access-Token"); token == "" && traffic { // E2B's SDKs send no token there
		p, err = tokens.IngressClient(c.UserContext(), t.Sandbox, c.Get(route.HeaderTraffic))
	} else {
		p, err = tokens.Bearer(c.UserContext(), t.Sandbox, token)
	}
	return found(p, err, msgToken)
}

// byBearer authenticates for the sandbox in the path's second segment, or without one for the
// sandbox whose token is sent. A sandbox that requires no token requires one here.
func byBearer(c *fiber.Ctx, accepted family.Credentials, tokens Tokens) (core.Principal, error) {
	var token string
	if accepted.Has(family.SandboxBearer) {
		token = bearer(c)
	}
	if token == "" && accepted.Has(family.SandboxQuery) {
		token = c.Query("token")
	}
	if token == "" {
		return core.Principal{}, unauthenticated(msgBearer)
	}
	made := func(t string) bool { return hmac.Equal([]byte(t), []byte(token)) }
	id, err := sandbox.ParseID(strings.Clone(segment(c, 1)))
	ok := err == nil && made(tokens.Token(id))
	if segment(c, 1) == "" {
		id, ok = tokens.Signer(made)
	}
	if !ok {
		return core.Principal{}, unauthenticated(msgBearer)
	}
	p, err := tokens.Bearer(c.UserContext(), id, token)
	return found(p, err, msgBearer)
}

// found returns the result of a check of a token: no error if the sandbox does not exist, and
// msg if the token is invalid.
func found(p core.Principal, err error, msg string) (core.Principal, error) {
	switch {
	case kind.Is(err, kind.NotFound):
		return core.Principal{}, nil
	case kind.Is(err, kind.Unauthenticated):
		return core.Principal{}, unauthenticated(msg)
	}
	return p, err
}

func unauthorized(c *fiber.Ctx, msg string) error {
	return route.WriteBody(c, &httperr.Body{Code: http.StatusUnauthorized, Message: msg})
}
