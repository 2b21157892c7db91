package files

import (
	"encoding/json"
	"errors"
	"path"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/file"
)

// maxCompose is the maximum number of bytes of a compose request.
const maxCompose = 256 << 10

// compose concatenates files of the sandbox into one, which replaces them.
func (h *Handler) compose(c *fiber.Ctx) error {
	var body struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	a, err := newFileRequest(c, file.OpCompose)
	if err != nil {
		return err
	}
	if err := decodeJSON(c.Request().Body(), &body); err != nil {
		return err
	}
	switch {
	case len(body.Sources) == 0:
		return invalid("source_paths must not be empty")
	case body.Destination == "":
		return invalid("destination is required")
	}
	a.Request = file.Request{Op: file.OpCompose, Path: body.Destination, Sources: body.Sources, User: body.Username}
	f, err := h.core.OpenFiles(c.UserContext(), a.principal, a.sandbox, &a.Request)
	if err != nil {
		return err
	}
	defer f.Close()
	e, err := only(f)
	if err != nil {
		return err
	}
	return c.JSON(uploaded{Path: e.GetPath(), Name: path.Base(e.GetPath()), Type: "file", Metadata: e.GetMetadata()})
}

func decodeJSON(raw []byte, v any) error {
	if len(raw) > maxCompose {
		return fiber.ErrRequestEntityTooLarge
	}
	err := json.Unmarshal(raw, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case !utf8.Valid(raw):
		return invalid("the body is not UTF-8")
	case errors.As(err, &wrong):
		return invalid("%s: must not be a JSON %s", wrong.Field, wrong.Value)
	case err != nil:
		return invalid("the body is not JSON: %s", err)
	}
	return nil
}
