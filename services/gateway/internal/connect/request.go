package connect

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// call is everything in a request except its message. It shares no memory with the
// request.
type call struct {
	principal core.Principal
	sbx       sandbox.ID
	named     string     // the sandbox as the client wrote it
	process   process.ID // set by header; empty: the message selects the process
	format    format
	timeout   time.Duration // 0: none
	user      string        // from Basic authorization
	raw       []byte        // the message as received, if it is JSON
	key       string        // Idempotency-Key: repeats with the same key are one call
	replay    string        // X-Replay-From
	next      process.Seq   // X-Replay-From of the response; 0: no header
	onSent    func(bool)    // called with whether the client has received the whole response; may be nil
}

const (
	headerVersion  = "Connect-Protocol-Version"
	headerTimeout  = "Connect-Timeout-Ms"
	headerEncoding = "Connect-Content-Encoding"
	headerAccepts  = "Connect-Accept-Encoding"
	headerProcess  = "X-Process-Id"
	headerKey      = "Idempotency-Key"
)

// newCall reads the headers. The format must have been read already.
func newCall(c *fiber.Ctx, f format) (call, error) {
	target := route.Of(c)
	r := call{principal: auth.From(c), sbx: target.Sandbox, named: target.Named, format: f}
	if v := c.Get(headerVersion); v != "" && v != "1" {
		return r, fail(CodeInvalid, "%s must be \"1\": got %q", headerVersion, v)
	}
	if err := r.readTimeout(c.Get(headerTimeout)); err != nil {
		return r, err
	}
	name, err := user(c)
	if err != nil {
		return r, err
	}
	r.user = name
	r.replay = strings.Clone(c.Get("X-Replay-From"))
	if r.key = strings.Clone(c.Get(headerKey)); len(r.key) > maxKey {
		return r, fail(CodeInvalid, "%s is longer than %d", headerKey, maxKey)
	}
	if id := c.Get(headerProcess); id != "" {
		parsed, err := process.ParseID(strings.Clone(id))
		if err != nil {
			return r, err
		}
		r.process = parsed
		if r.named == "" {
			r.sbx = parsed.Sandbox()
		}
	}
	if r.sbx == "" && r.named == "" {
		r.sbx = r.principal.Sandbox // a sandbox's own token implies it
	}
	if r.sbx == "" {
		return r, &unrouted{r.named}
	}
	r.named = string(r.sbx)
	return r, nil
}

// readTimeout parses Connect-Timeout-Ms: at most ten digits.
func (r *call) readTimeout(v string) error {
	if v == "" {
		return nil
	}
	ms, err := strconv.ParseUint(v, 10, 63)
	if err != nil || len(v) > 10 || v[0] == '+' {
		return fail(CodeInvalid, "protocol error: invalid %s %q", headerTimeout, v)
	}
	r.timeout = time.Duration(ms) * time.Millisecond
	return nil
}

// context bounds a call's work; without a timeout the operations' own bounds apply.
func (r *call) context(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	if r.timeout > 0 {
		return context.WithTimeout(c.UserContext(), r.timeout)
	}
	return context.WithCancel(c.UserContext())
}

// user returns the user name of a Basic authorization, which the SDKs send.
func user(c *fiber.Ctx) (string, error) {
	scheme, cred, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "basic") {
		return "", nil
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(cred))
	if err != nil {
		return "", fail(CodeUnauth, "invalid basic authorization")
	}
	name, _, _ := strings.Cut(string(raw), ":")
	return name, nil
}

// option reads an option from the query or from a header.
func option(c *fiber.Ctx, query, header string) string {
	if v := c.Query(query); v != "" {
		return strings.Clone(v)
	}
	return strings.Clone(c.Get(header))
}

// accepts reports whether an Accept-Encoding list includes gzip.
func accepts(list string) bool {
	for part := range strings.SplitSeq(list, ",") {
		name, q, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return strings.ReplaceAll(q, " ", "") != "q=0"
		}
	}
	return false
}

// encoded parses a request's encoding.
func encoded(name string) (gzipped bool, err error) {
	switch name {
	case "", "identity":
		return false, nil
	case "gzip":
		return true, nil
	}
	return false, fail(CodeUnimpl, "unknown compression %q: supported encodings are gzip", name)
}

// routed returns unrouted if the call's sandbox does not run.
func (r *call) routed(in Sandboxes) error {
	st, err := in.Sandbox(r.principal, r.sbx)
	if kind.Is(err, kind.NotFound) || err == nil && st.Over() {
		return &unrouted{r.named}
	}
	return err
}
