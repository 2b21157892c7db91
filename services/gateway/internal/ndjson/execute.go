package ndjson

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// execution is the body of POST /execute, as code interpreters are asked.
type execution struct {
	Code     string `json:"code"`
	Language string `json:"language"`
	Context  string `json:"context_id"`
}

// noKernel is a whole execution in a sandbox whose template has no kernel: it
// failed, and it ended. No template has one yet.
const noKernel = `{"type":"error","name":"KernelNotFound","value":"the sandbox's template has no kernel to run code; run a command instead","traceback":""}
{"type":"end_of_execution"}
`

// execute answers code to be run, one JSON object a line (C-044): it is no
// command, is not counted as one, and a client of a code interpreter is told in
// the form it knows.
func (h *Handler) execute(c *fiber.Ctx) error {
	var e execution
	if err := record.Decode(c.Body(), &e); err != nil {
		return err
	}
	if e.Code == "" {
		return invalid("code is required")
	}
	if e.Language != "" && e.Context != "" {
		return invalid("language and context_id: give one")
	}
	if _, err := h.sandbox(c, auth.From(c)); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "application/x-ndjson")
	return c.SendString(noKernel)
}
