package httpconn

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// RejectFraming rejects requests whose framing a proxy in front may have read differently
// (request smuggling), and closes the connection: nothing that follows on it can be trusted.
// The server itself rejects the rest.
func RejectFraming(c *fiber.Ctx) error {
	req := c.Request()
	why := framing(req.Header.RawHeaders())
	switch {
	case why != "":
	case !bytes.HasPrefix(req.Header.Protocol(), []byte("HTTP/1.")):
		why = "HTTP version not supported"
	default:
		return c.Next()
	}
	c.Context().SetConnectionClose()
	return fiber.NewError(fiber.StatusBadRequest, why)
}

// framing returns what makes the length of the body ambiguous in the raw head; empty if
// nothing does.
func framing(head []byte) string {
	length, encodings := false, 0
	for line := range bytes.Lines(head) {
		if line[0] == ' ' || line[0] == '\t' {
			return "folded header"
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			length = true
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			if encodings++; string(bytes.TrimSpace(value)) != "chunked" {
				return "transfer encoding other than chunked"
			}
		}
	}
	if encodings > 1 || length && encodings > 0 {
		return "body length given twice"
	}
	return ""
}

// AmbiguousPath reports whether decoding the path early changes its structure. slash allows
// encoded slashes: the path contains names, and no route has the decoded form.
func AmbiguousPath(p []byte, slash bool) bool {
	for i, b := range p {
		switch {
		case b == '\\' || b == 0:
			return true
		case b == '%' && i+2 < len(p):
			switch strings.ToLower(string(p[i+1 : i+3])) {
			case "2f":
				if !slash {
					return true
				}
			case "00", "5c":
				return true
			}
		}
	}
	return false
}
