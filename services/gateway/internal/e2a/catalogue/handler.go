package catalogue

import (
	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// page is the response of both routes.
type page struct {
	Templates []App `json:"templates"`
}

// Register adds the routes.
func Register(r fiber.Router) {
	r.Get("/v1/templates", list)
	r.Get("/v1/templates/:app_id", get)
}

func list(c *fiber.Ctx) error { return body.Write(c, fiber.StatusOK, page{Apps()}) }

// get responds with one entry. The code of its error is the event in the audit trail.
func get(c *fiber.Ctx) error {
	a, ok := Find(c.Params("app_id"))
	if !ok {
		return kind.Coded(kind.NotFound, "get template", "", "template_not_found", "template not found")
	}
	return body.Write(c, fiber.StatusOK, page{[]App{a}})
}
