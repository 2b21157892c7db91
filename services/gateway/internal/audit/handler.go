package audit

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/audit"
	"github.com/millrace/millrace/events/kind"
)

// page is the response to GET /v1/audit.
type page struct {
	Links []audit.Link `json:"links"` // without any, the trail ends here
	Next  uint64       `json:"next"`  // position of the next page
}

// Read serves GET /v1/audit?from=POSITION: a page of the trail, oldest first.
func (w *Writer) Read(c *fiber.Ctx) error {
	from := uint64(0)
	if q := c.Query("from"); q != "" {
		n, err := strconv.ParseUint(q, 10, 64)
		if err != nil {
			return kind.New(kind.Invalid, "read audit trail", "", "from: must be a position")
		}
		from = n
	}
	links, next, err := w.trail.ReadAudit(c.UserContext(), from)
	if err != nil {
		return err
	}
	if links == nil {
		links = []audit.Link{}
	}
	return c.JSON(page{links, next})
}
