package record

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Inputs sends input to processes. It is implemented by [procs.Procs].
type Inputs interface {
	SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error
	SendInputOnce(ctx context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error
}

// HeaderKey is the header that makes repeated requests one request.
const HeaderKey = "Idempotency-Key"

// maxKey is the maximum length of an Idempotency-Key.
const maxKey = 255

// CheckKey checks an Idempotency-Key: at most 255 bytes without control characters.
func CheckKey(key string) error {
	if len(key) > maxKey {
		return kind.Newf(kind.Invalid, "check key", "", "%s is longer than %d bytes", HeaderKey, maxKey)
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return kind.Newf(kind.Invalid, "check key", "", "%s has a control character", HeaderKey)
	}
	return nil
}

// SendInput sends the request's body to a process's stdin, and closes it with eof=1. With an
// Idempotency-Key the request may be repeated, at any gateway, and the input is delivered
// once.
func SendInput(ctx context.Context, c *fiber.Ctx, to Inputs, id process.ID) error {
	body, err := Body(c)
	if err != nil {
		return err
	}
	p, data, eof := auth.From(c), slices.Clone(body), Flag(c, "eof", false)
	key := strings.Clone(c.Get(HeaderKey))
	switch {
	case len(key) > maxKey:
		return kind.Newf(kind.Invalid, "send input", string(id), "%s is longer than %d", HeaderKey, maxKey)
	case key != "":
		return to.SendInputOnce(ctx, p, id, key, data, eof)
	}
	return to.SendInput(ctx, p, id, data, eof)
}
