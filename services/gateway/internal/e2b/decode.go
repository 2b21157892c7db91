package e2b

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// maxBody is the maximum size of a control plane request in bytes.
const maxBody = 1 << 20

// decode decodes the JSON body into v. An empty body is Invalid if required, and otherwise
// leaves v unchanged. Unknown fields are ignored: SDKs may be newer or older than this
// server.
func decode(c *fiber.Ctx, v any, required bool) error {
	raw, err := record.Body(c)
	switch {
	case err != nil:
		return err
	case len(raw) > maxBody:
		return fiber.ErrRequestEntityTooLarge
	case len(raw) == 0 && !required:
		return nil
	case len(raw) == 0:
		return invalid("a JSON body is required")
	case !utf8.Valid(raw):
		return invalid("the body is not UTF-8")
	}
	err = json.Unmarshal(raw, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong) && wrong.Field != "":
		return invalid("%s: must not be a JSON %s", fieldOf(wrong), wrong.Value)
	case errors.As(err, &wrong):
		return invalid("the body must not be a JSON %s", wrong.Value)
	}
	return invalid("the body is not JSON: %s", err)
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

func invalid(format string, args ...any) error {
	return kind.Newf(kind.Invalid, "decode", "", format, args...)
}

// lifetime checks a timeout in seconds; nil means def.
func (h *Handler) lifetime(seconds *int64, def time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return def, nil
	case *seconds < 0:
		return 0, invalid("timeout cannot be negative")
	case *seconds > int64(h.cfg.MaxTimeout/time.Second):
		return 0, invalid("timeout cannot be greater than %d seconds", h.cfg.MaxTimeout/time.Second)
	}
	// In a record 0 means no timeout; a timeout of 0 ends the sandbox at once.
	return max(time.Duration(*seconds)*time.Second, time.Nanosecond), nil
}

// Maximum sizes of a sandbox's metadata and environment, in bytes of keys and values.
const (
	maxMetadata = 64 << 10
	maxEnv      = 256 << 10
)

func checkMetadata(m map[string]string) error {
	if size(m) > maxMetadata {
		return invalid("metadata is larger than %d bytes", maxMetadata)
	}
	return nil
}

func checkEnv(m map[string]string) error {
	if size(m) > maxEnv {
		return invalid("envVars is larger than %d bytes", maxEnv)
	}
	return process.CheckEnv("decode", m)
}

func size(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// number parses a whole number between least and most in the query; def if it is absent.
func number(c *fiber.Ctx, name string, def, least, most int) (int, error) {
	s := c.Query(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, invalid("%s must be between %d and %d", name, least, most)
	}
	return n, nil
}
