package e2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

// maxPublic is the maximum size of a body that is read without credentials, in bytes.
const maxPublic = 8 << 10

// body returns the body of a request. The middleware has read it unless the route is public.
func body(c *fiber.Ctx) ([]byte, error) {
	r := c.Context().RequestBodyStream()
	if r == nil || !route.Part(c).Credentials.Has(family.Public) {
		return record.Body(c)
	}
	n, err := httpconn.ReadBody(c, r, maxPublic)
	switch {
	case n > maxPublic:
		return nil, fiber.ErrRequestEntityTooLarge
	case err != nil:
		return nil, httpconn.Unreadable(c)
	}
	return record.Body(c)
}

// field is a member of a request that is a string.
type field struct {
	name string
	into *string
}

// decode decodes the body of a request.
func decode(c *fiber.Ctx, fields ...field) error {
	raw, err := body(c)
	if err == nil {
		err = parse(raw, fields)
	}
	return err
}

// parse reads the fields of a JSON object. Unlike encoding/json it compares the case of names and
// rejects a repeated field, so that no proxy in front reads another value. Members that are
// unknown are ignored, and so is null.
func parse(raw []byte, fields []field) error {
	if !utf8.Valid(raw) {
		return invalid("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return invalid("the body is not a JSON object")
	}
	seen := make(map[string]bool)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return invalid("the body is not a JSON object")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return invalid("the body is not a JSON object")
		}
		for _, f := range fields {
			if name != f.name {
				continue
			}
			if seen[f.name] {
				return invalid(f.name + " is given twice")
			}
			seen[f.name] = true
			if err := json.Unmarshal(value, f.into); err != nil {
				return invalid(f.name + " must be a string")
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return invalid("the body is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("the body has more than one value")
	}
	return nil
}

func invalid(msg string) error { return kind.New(kind.Invalid, "decode", "", msg) }

// status is a response without a result.
type status struct {
	Status string `json:"status"`
}

// write responds with JSON. Responses contain credentials.
func write(c *fiber.Ctx, code int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.Status(code)
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Send(raw)
}
