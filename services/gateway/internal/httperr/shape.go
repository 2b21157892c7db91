package httperr

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
)

// Shape is the form of an error's body.
type Shape uint8

// Forms of errors.
const (
	E2B     Shape = iota // JSON of a Body
	Named                // JSON with a name as its code, as clients of volumes expect
	Proxy                // JSON or a page, as from E2B's proxy; see Proxied
	E2A                  // JSON with a machine-readable error and a message
	Problem              // problem details (RFC 7807) with Backend.AI's types
	Text                 // one line of text
)

// named is the body of Named.
type named struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// e2aBody is the body of E2A.
type e2aBody struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// problem is the body of Problem.
type problem struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	Msg   string `json:"msg"`
}

const (
	mimeProblem  = "application/problem+json"
	problemTypes = "https://api.backend.ai/probs/"
)

// Write responds with the status and the text of b.
func (s Shape) Write(c *fiber.Ctx, b *Body) error {
	var body any
	mime := fiber.MIMEApplicationJSONCharsetUTF8
	if b.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(b.RetryAfter))
	}
	switch s {
	case E2B:
		body = b
	case Named:
		body = named{b.name(), b.Message}
	case Proxy:
		return WriteProxied(c, Proxied{Message: b.Message, Code: b.Code})
	case E2A:
		body = e2aBody{b.name(), b.Message}
	case Problem:
		body, mime = problem{problemTypes + slug(b.Code), http.StatusText(b.Code), b.Message}, mimeProblem
	case Text:
		c.Status(b.Code).Set(fiber.HeaderContentType, fiber.MIMETextPlainCharsetUTF8)
		return c.SendString(b.Message + "\n")
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	c.Status(b.Code).Set(fiber.HeaderContentType, mime)
	return c.Send(raw)
}

// name returns the error code, or one that is made from the status.
func (b *Body) name() string {
	switch {
	case b.ErrorCode != "":
		return b.ErrorCode
	case b.Code == http.StatusUnauthorized:
		return kind.Unauthenticated.String()
	}
	return name(http.StatusText(b.Code))
}

// slug returns the last segment of the type of Backend.AI's error for a status.
func slug(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "auth-failed"
	case http.StatusForbidden:
		return "generic-forbidden"
	case http.StatusNotFound:
		return "url-not-found"
	case http.StatusMethodNotAllowed:
		return "method-not-allowed"
	case http.StatusTooManyRequests:
		return "rate-limit-exceeded"
	case http.StatusServiceUnavailable:
		return "instance-not-available"
	}
	if status >= http.StatusInternalServerError {
		return "internal-server-error"
	}
	return "generic-bad-request"
}
