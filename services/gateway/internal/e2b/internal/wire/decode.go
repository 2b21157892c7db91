package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// maxBody is the maximum size of a control plane request in bytes.
const maxBody = 1 << 20

// Decode decodes the JSON body into v. An empty body is Invalid if required, and otherwise
// leaves v unchanged. Unknown fields are ignored: SDKs may be newer or older than this
// server.
func Decode(c *fiber.Ctx, v any, required bool) error {
	raw, err := record.Body(c)
	switch {
	case err != nil:
		return err
	case len(raw) > maxBody:
		return fiber.ErrRequestEntityTooLarge
	case len(raw) == 0 && !required:
		return nil
	case len(raw) == 0:
		return Invalid("a JSON body is required")
	case !utf8.Valid(raw):
		return Invalid("the body is not UTF-8")
	}
	err = json.Unmarshal(raw, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return Invalid("%s: must not be a JSON %s", fieldOf(wrong), wrong.Value)
	case errors.As(err, &wrong):
		return Invalid("the body must not be a JSON %s", wrong.Value)
	}
	return Invalid("the body is not JSON: %s", err)
}

// fieldOf returns the field's path in the request: for a field of an embedded struct, Go's
// path begins with the struct's name.
func fieldOf(wrong *json.UnmarshalTypeError) string {
	embedded, field, ok := strings.Cut(wrong.Field, ".")
	if ok && strings.HasSuffix(embedded, "Body") {
		return field
	}
	return wrong.Field
}

// Invalid returns the error of a request that cannot be decoded.
func Invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "decode", "", format, args...)
}
