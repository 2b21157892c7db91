package record

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// CallTimeout limits the part of a request before its stream begins, or all of a request
// without a stream.
const CallTimeout = 30 * time.Second

// Context returns the context of a handler's calls. The handler must call the cancel
// function at its end.
func Context(c *fiber.Ctx) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.UserContext(), CallTimeout)
}

// ProcessID parses the path parameter param; an invalid id is NotFound. The result does not
// share memory with the request.
func ProcessID(c *fiber.Ctx, param string) (process.ID, error) {
	return process.ParseID(strings.Clone(c.Params(param)))
}

// Flag parses a boolean query parameter: "0" and "false" are false, any other value is
// true.
func Flag(c *fiber.Ctx, name string, otherwise bool) bool {
	if !c.Context().QueryArgs().Has(name) {
		return otherwise
	}
	v := c.Query(name)
	return v != "0" && v != "false"
}

// Limit parses the query's limit: 1 or more; absent is 0. Its errors are Invalid.
func Limit(c *fiber.Ctx) (int, error) {
	v := c.Query("limit")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || n == 0 {
		return 0, kind.New(kind.Invalid, "parse limit", "", "limit: must be a positive number")
	}
	return int(n), nil
}

// Body returns the request's body. A body with a content encoding is rejected: fiber would
// decompress it without a limit, and return a decompression error as the body.
func Body(c *fiber.Ctx) ([]byte, error) {
	if coding := c.Get(fiber.HeaderContentEncoding); coding != "" && coding != "identity" {
		return nil, fiber.NewError(fiber.StatusUnsupportedMediaType, "content encoding not supported")
	}
	return c.Request().Body(), nil
}

// Read decodes the request's body (see [Body]).
func Read(c *fiber.Ctx, into any) error {
	body, err := Body(c)
	if err != nil {
		return err
	}
	return Decode(body, into)
}

// Decode decodes a single JSON value; its errors are Invalid.
func Decode(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil || kind.Is(err, kind.Invalid):
		return err
	case errors.As(err, &wrong) && wrong.Field != "":
		return kind.Newf(kind.Invalid, "decode", "", "%s: must not be a %s", wrong.Field, wrong.Value)
	}
	return kind.Newf(kind.Invalid, "decode", "", "the body is not a JSON object: %v", err)
}

// StreamHeaders returns the headers of every stream of a record: its process, its position,
// and that proxies must neither cache nor buffer it.
func StreamHeaders(id process.ID, after process.Seq) [][2]string {
	return [][2]string{
		{"X-Process-Id", string(id)},
		{"X-Sandbox-Id", string(id.Sandbox())},
		{"X-Record-After", strconv.FormatUint(after, 10)},
		{fiber.HeaderCacheControl, "no-store"},
		{fiber.HeaderXContentTypeOptions, "nosniff"},
		{"X-Accel-Buffering", "no"},
	}
}
