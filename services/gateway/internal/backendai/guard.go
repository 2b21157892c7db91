package backendai

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/backendai/signature"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/rate"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// server is the name of the server in responses.
const server = "millrace"

// anonymousLimit is the limit that requests without a valid signature are told.
const anonymousLimit = 1000

// Guard is middleware for the requests of the family: it sets their principal, and responds to the
// errors of all handlers after it.
func (h *Handler) Guard(c *fiber.Ctx) error {
	part := route.Part(c)
	if part.Family != family.BackendAI {
		return c.Next()
	}
	if part.Credentials.Has(family.PairSignature) {
		if err := h.authenticate(c); err != nil {
			return h.fail(c, err)
		}
	}
	if err := c.Next(); err != nil {
		return h.fail(c, err)
	}
	return nil
}

// Headers is middleware that sets the name of the server and the headers about the rate limit, also
// for requests that are rejected before Guard.
func Headers(c *fiber.Ctx) error {
	if route.Part(c).Family == family.BackendAI || c.Path() == "/" {
		c.Set(fiber.HeaderServer, server)
		setRate(c, anonymousLimit, anonymousLimit)
	}
	return c.Next()
}

// authenticate checks the signature, the rate and the version of a request.
func (h *Handler) authenticate(c *fiber.Ctx) error {
	head := &c.Request().Header
	authorization := head.PeekAll(fiber.HeaderAuthorization)
	if len(authorization) > 1 {
		return kind.Coded(kind.Invalid, "check signature", "", signature.BadParams, "more than one Authorization header")
	}
	now := time.Now()
	key, pair, err := (&signature.Request{
		Method: string(head.Method()), Target: string(head.RequestURI()), Host: string(head.Host()),
		ContentType: string(head.ContentType()), Version: version(c), Date: firstOf(c, fiber.HeaderDate, "X-BackendAI-Date", "X-Sorna-Date"),
		Authorization: string(head.Peek(fiber.HeaderAuthorization)),
	}).Check(now, h.cfg.Pairs.Pair)
	if err != nil {
		return err
	}
	left, _ := h.cfg.Counts.Add(key, now, rate.Limit{Requests: h.cfg.RateLimit, Period: rate.Window})
	setRate(c, h.cfg.RateLimit, max(left, 0))
	if left < 0 {
		return kind.Coded(kind.Exhausted, "count request", "", rateLimited, "You have reached your API query rate limit.")
	}
	auth.Set(c, core.Principal{Tenant: pair.Tenant})
	c.Locals(accessKey{}, key)
	return checkVersion(c)
}

// accessKey is the key of the local value with the access key of a request.
type accessKey struct{}

// accessKeyOf returns the access key that signed the request.
func accessKeyOf(c *fiber.Ctx) string {
	key, _ := c.Locals(accessKey{}).(string)
	return key
}

// firstOf returns the value of the first header that is present.
func firstOf(c *fiber.Ctx, names ...string) string {
	for _, n := range names {
		if v := c.Get(n); v != "" {
			return strings.Clone(v)
		}
	}
	return ""
}

// version returns the version of the API that a client uses; empty if it sends none.
func version(c *fiber.Ctx) string { return firstOf(c, "X-BackendAI-Version", "X-Sorna-Version") }

// oldest is the first version whose clients do not sign bodies.
const oldest = "v4.20181215"

var versionPattern = regexp.MustCompile(`^v[4-9]\.[0-9]{8}$`)

// checkVersion rejects the clients of versions that are not served. A client without a version
// gets the one that the gateway reports.
func checkVersion(c *fiber.Ctx) error {
	if v := version(c); v != "" && (!versionPattern.MatchString(v) || v < oldest) {
		return kind.Coded(kind.Invalid, "check version", "", badRequest, "Unsupported API version")
	}
	return nil
}

// atLeast reports whether the client uses a version or a later one.
func atLeast(c *fiber.Ctx, v string) bool {
	used := version(c)
	return used == "" || used >= v
}

// setRate sets the headers about the rate limit.
func setRate(c *fiber.Ctx, limit, remaining int) {
	c.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	c.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	c.Set("X-RateLimit-Window", strconv.Itoa(int(rate.Window/time.Second)))
}

// Version is the version of the API that the gateway reports. Clients use the older one of this
// and their own.
const Version = "v4.20190615"

// about responds with the version.
func (h *Handler) about(c *fiber.Ctx) error {
	return c.Status(http.StatusOK).JSON(struct {
		Version string `json:"version"`
		Manager string `json:"manager"`
	}{Version, h.cfg.Version})
}
