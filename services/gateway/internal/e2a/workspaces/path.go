package workspaces

import (
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// scopeOf returns the workspace in the path of a request.
func scopeOf(c *fiber.Ctx) (workspace.Scope, error) {
	return workspace.ParseScope(auth.From(c).Tenant, c.Params("app"), c.Params("set"))
}

// fileSegment is the segment of a path at which that of a file begins.
const fileSegment = 6

// fileOf returns the file in the path of a request. A segment that contains a slash when it is decoded
// is rejected by the middleware, and again here.
func fileOf(c *fiber.Ctx) (of workspace.Scope, p workspace.Path, err error) {
	if of, err = scopeOf(c); err != nil {
		return of, "", err
	}
	// The router's own parameter lacks a slash at the end.
	names := strings.Split(string(c.Request().URI().PathOriginal()), "/")[fileSegment:]
	for i, raw := range names {
		name, err := url.PathUnescape(raw)
		if err != nil || strings.Contains(name, "/") {
			return of, "", body.Invalid("the path is not encoded correctly")
		}
		names[i] = name
	}
	p, err = workspace.ParsePath(strings.Join(names, "/"))
	return of, p, err
}
