package httperr

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Proxied is an error in the format of E2B's proxy: the state of the sandbox, or of its
// port, that a request was for.
type Proxied struct {
	SandboxID string `json:"sandboxId"` // as the client wrote it
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

// Gone returns the error of a sandbox that does not run: SDKs treat it as ended.
func Gone(name string) Proxied {
	return Proxied{SandboxID: name, Message: "The sandbox was not found", Code: http.StatusBadGateway}
}

// WriteProxied responds with p.
func WriteProxied(c *fiber.Ctx, p Proxied) error {
	kind, raw, err := p.body(Browser(c))
	if err != nil {
		return err
	}
	c.Status(p.Code).Set(fiber.HeaderContentType, kind)
	return c.Send(raw)
}

// Response returns p as an upstream's response.
func (p *Proxied) Response(browser bool) *http.Response {
	kind, raw, err := p.body(browser)
	if err != nil {
		raw = nil
	}
	return &http.Response{
		StatusCode: p.Code, ContentLength: int64(len(raw)), Body: io.NopCloser(strings.NewReader(string(raw))),
		Header: http.Header{fiber.HeaderContentType: {kind}},
	}
}

// Browser reports whether the client is a browser that shows the response to a person: it
// gets a page, all others get JSON.
func Browser(c *fiber.Ctx) bool {
	if strings.Contains(strings.ToLower(c.Get(fiber.HeaderAccept)), "json") {
		return false
	}
	agent := strings.ToLower(c.Get(fiber.HeaderUserAgent))
	for _, name := range [...]string{"mozilla", "chrome", "safari", "firefox", "edge", "opera", "msie"} {
		if strings.Contains(agent, name) {
			return true
		}
	}
	return false
}

func (p *Proxied) body(browser bool) (kind string, raw []byte, err error) {
	if !browser {
		raw, err = json.Marshal(p)
		return fiber.MIMEApplicationJSONCharsetUTF8, raw, err
	}
	where := "Sandbox " + p.SandboxID
	if p.Port != 0 {
		where += fmt.Sprintf(", port %d", p.Port)
	}
	return fiber.MIMETextHTMLCharsetUTF8, fmt.Appendf(nil, page, p.Code, html.EscapeString(p.Message), html.EscapeString(where)), nil
}

// page is the HTML page: code, problem and place.
const page = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>%[1]d</title>
<style>body{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:36rem;padding:0 1rem}code{opacity:.7}</style></head>
<body><h1>%[2]s</h1><p>%[3]s</p><code>%[1]d</code></body></html>
`
