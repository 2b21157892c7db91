package record

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

// RangeError reports a position that cannot be read, and one that can.
type RangeError struct {
	ID    process.ID
	Kind  kind.Kind   // Gone: before the first retained event. Invalid: past the end
	First process.Seq // if Gone: the first retained event; 0: none or unknown
	Last  process.Seq // if Invalid: the last event
}

// Error returns the message with the readable position.
func (e *RangeError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error with its kind.
func (e *RangeError) Unwrap() error {
	switch {
	case e.Kind == kind.Gone && e.First == 0:
		return kind.New(e.Kind, "read", string(e.ID), "retention has passed")
	case e.Kind == kind.Gone:
		return kind.Newf(e.Kind, "read", string(e.ID), "retention has passed; the first event left is %d", e.First)
	}
	return kind.Newf(e.Kind, "read", string(e.ID), "out of range; the last event is %d", e.Last)
}

// rangeBody is httperr.Body with positions.
type rangeBody struct {
	httperr.Body
	First *process.Seq `json:"first,omitempty"`
	Last  *process.Seq `json:"last,omitempty"`
}

// CodeOutOfRange is the error_code of a position past the end.
const CodeOutOfRange = "out_of_range"

// WriteError responds to a *RangeError: 410 with first, or 400 with error_code
// out_of_range and last. It returns any other error for the app's error handler.
func WriteError(c *fiber.Ctx, err error) error {
	var r *RangeError
	if !errors.As(err, &r) {
		return err
	}
	b := rangeBody{Body: httperr.Of(err)}
	switch {
	case r.Kind != kind.Gone:
		b.ErrorCode, b.Last = CodeOutOfRange, &r.Last
	case r.First != 0:
		b.First = &r.First
	}
	raw, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	c.Status(b.Code).Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
	return c.Send(raw)
}
