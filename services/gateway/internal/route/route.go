// Package route determines the family that a request belongs to, and the sandbox and port that it
// is for.
package route

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/family"
)

// Headers of E2B's SDKs.
const (
	HeaderSandbox = "E2b-Sandbox-Id"
	HeaderPort    = "E2b-Sandbox-Port"
	HeaderTraffic = "E2b-Traffic-Access-Token" // for the gateway, not for servers in the sandbox
)

// Target is the sandbox and port that a request names.
type Target struct {
	Sandbox sandbox.ID // empty: no sandbox, or an invalid id
	Named   string     // id as the client wrote it, for responses
	Port    int        // family.EnvdPort unless another was named
	Host    bool       // named by the Host header: the request is for the sandbox only
}

// Of returns the target: from the Host's first label `<port>-<id>[-client]`, else from the
// sandbox header, which E2B's proxy also ignores if the Host names a sandbox, else from the
// query `sandbox` where the family has it. The result shares no memory with the request.
func Of(c *fiber.Ctx) Target {
	if port, id, ok := family.ParseHost(string(c.Request().Host())); ok {
		t := named(id, port)
		t.Host = true
		return t
	}
	if h := c.Get(HeaderSandbox); h != "" {
		return named(h, headerPort(c))
	}
	if q := c.Query("sandbox"); q != "" && Part(c).Query {
		return named(q, family.EnvdPort)
	}
	return Target{Port: family.EnvdPort}
}

// headerPort returns the port in the header of a request for a sandbox.
func headerPort(c *fiber.Ctx) int {
	if p, err := strconv.Atoi(c.Get(HeaderPort)); err == nil {
		return p
	}
	return family.EnvdPort
}

// Sandbox returns only the sandbox of Of; false if the request names no valid one.
func Sandbox(c *fiber.Ctx) (sandbox.ID, bool) {
	t := Of(c)
	return t.Sandbox, t.Sandbox != ""
}

// Choose returns the sandbox for a request that people may type by hand: the one it names,
// else its token's, else the only running one. It returns NotFound or Invalid if there is no
// such sandbox.
func Choose(c *fiber.Ctx, bearer sandbox.ID, live func() []sandbox.State) (sandbox.ID, error) {
	t := Of(c)
	switch {
	case t.Sandbox != "":
		return t.Sandbox, nil
	case t.Named != "":
		return "", kind.New(kind.NotFound, "find sandbox", "", "sandbox not found")
	case bearer != "":
		return bearer, nil
	}
	running := live()
	switch len(running) {
	case 1:
		return running[0].ID, nil
	case 0:
		return "", kind.New(kind.Invalid, "find sandbox", "", "no sandbox is running: create one with POST /sandboxes")
	}
	return "", kind.Newf(kind.Invalid, "find sandbox", "",
		"%d sandboxes are running: name one in the header %s or with ?sandbox=", len(running), HeaderSandbox)
}

// Parse parses a sandbox id from a client and drops a legacy "-clientid" suffix. The result
// does not share memory with s.
func Parse(s string) (sandbox.ID, error) {
	s, _, _ = strings.Cut(s, "-")
	return sandbox.ParseID(strings.Clone(s))
}

func named(s string, port int) Target {
	id, _ := Parse(s)
	return Target{Sandbox: id, Named: strings.Clone(s), Port: port}
}
