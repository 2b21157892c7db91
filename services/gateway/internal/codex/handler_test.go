package codex

import (
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/millrace/millrace/events/attachment"
)

// a session waits 80 s for its client unless the URL says otherwise.
func TestPolicyOf(t *testing.T) {
	app := fiber.New()
	for query, want := range map[string]struct {
		policy attachment.Policy
		ok     bool
	}{
		"":                               {attachment.Policy{TTL: 80 * time.Second}, true},
		"on_disconnect=detach":           {attachment.Policy{TTL: 80 * time.Second}, true},
		"on_disconnect=terminate":        {attachment.Policy{Terminate: true, TTL: 80 * time.Second}, true},
		"detach_timeout=3":               {attachment.Policy{TTL: 3 * time.Second}, true},
		"detach_timeout=86400":           {attachment.Policy{TTL: 24 * time.Hour}, true},
		"detach_timeout=86401":           {},
		"detach_timeout=0":               {},
		"detach_timeout=-1":              {},
		"detach_timeout=99999999999999":  {},
		"on_disconnect=Terminate":        {},
		"detach_timeout=1&on_disconnect": {attachment.Policy{TTL: time.Second}, true},
	} {
		req := &fasthttp.RequestCtx{}
		req.Request.SetRequestURI("/?" + query)
		c := app.AcquireCtx(req)
		got, err := policyOf(c)
		app.ReleaseCtx(c)
		if (err == nil) != want.ok || want.ok && got != want.policy {
			t.Errorf("%q: %+v, %v; want %+v, ok %v", query, got, err, want.policy, want.ok)
		}
	}
}
