// Package body reads and writes the bodies of e2a's requests and responses.
//
// Unlike encoding/json it compares the case of names and rejects a repeated member, at any depth of what
// it reads, so that no proxy in front of a gateway reads another value than the gateway does. Unknown
// members are ignored, and null counts as absent. All errors have the kind Invalid.
package body

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

// Read returns the body of a request. The middleware has read it unless the route is public.
func Read(c *fiber.Ctx) ([]byte, error) {
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

// Field is a member of an object, and where its value goes: a pointer for encoding/json.
type Field struct {
	Name string
	Into any
	Want string // what the value must be; empty: "a string"
}

// Decode decodes the body of a request.
func Decode(c *fiber.Ctx, fields ...Field) error {
	raw, err := Read(c)
	if err == nil {
		err = Parse(raw, fields...)
	}
	return err
}

// Parse reads the fields of a JSON object. A nested object is a json.RawMessage for another Parse.
func Parse(raw []byte, fields ...Field) error {
	if !utf8.Valid(raw) {
		return Invalid("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Invalid("the body is not a JSON object")
	}
	seen := make(map[string]bool)
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return Invalid("the body is not a JSON object")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return Invalid("the body is not a JSON object")
		}
		for i := range fields {
			if f := &fields[i]; name == f.Name {
				if seen[f.Name] {
					return Invalid(f.Name + " is given twice")
				}
				seen[f.Name] = true
				if err := f.set(value); err != nil {
					return err
				}
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return Invalid("the body is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Invalid("the body has more than one value")
	}
	return nil
}

func (f *Field) set(value json.RawMessage) error {
	if string(value) == "null" {
		return nil
	}
	if repeats(value) {
		return Invalid(f.Name + " has a name twice")
	}
	if err := json.Unmarshal(value, f.Into); err != nil {
		want := f.Want
		if want == "" {
			want = "a string"
		}
		return Invalid(f.Name + " must be " + want)
	}
	return nil
}

// repeats reports whether an object in a valid JSON value has a name twice.
func repeats(value json.RawMessage) bool {
	if value[0] != '{' && value[0] != '[' {
		return false
	}
	type level struct {
		names map[string]bool // nil: an array
		value bool            // the next token of an object is a value
	}
	var open []level
	for d := json.NewDecoder(bytes.NewReader(value)); ; {
		t, err := d.Token()
		if err != nil {
			return false // the end
		}
		at := len(open) - 1
		switch {
		case t == json.Delim('}') || t == json.Delim(']'):
			open = open[:at]
			continue
		case at >= 0 && open[at].names != nil && !open[at].value:
			name, _ := t.(string)
			if open[at].names[name] {
				return true
			}
			open[at].names[name], open[at].value = true, true
			continue
		case at >= 0:
			open[at].value = false
		}
		switch t {
		case json.Delim('{'):
			open = append(open, level{names: make(map[string]bool)})
		case json.Delim('['):
			open = append(open, level{})
		}
	}
}

// Invalid returns the error of a malformed request.
func Invalid(msg string) error { return kind.New(kind.Invalid, "decode", "", msg) }

// Write responds with JSON, which no cache may keep: responses may contain credentials.
func Write(c *fiber.Ctx, code int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.Status(code)
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Send(raw)
}

// Status is a response without a result.
type Status struct {
	Status string `json:"status"`
}
