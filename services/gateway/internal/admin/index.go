package admin

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
)

// about is the response to GET / for every client that does not prefer HTML.
type about struct {
	Name    string `json:"name"`
	Version string `json:"version"` // of Backend.AI's API, as its clients expect
	Manager string `json:"manager"` // version of this program
	Health  string `json:"health"`  // path that responds with 200 once the gateway is ready
	Docs    string `json:"docs"`
}

// DocsURL is the address of this program's documentation.
const DocsURL = "https://github.com/millrace/millrace#readme"

// Index returns the handler of GET /: page for browsers, otherwise a JSON object with the version
// of this program and, as that of the API, Backend.AI's. It requires no credentials and discloses
// nothing about tenants.
func Index(version, api string, page fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Vary(fiber.HeaderAccept)
		if c.Accepts(fiber.MIMEApplicationJSON, fiber.MIMETextHTML) == fiber.MIMETextHTML {
			return page(c)
		}
		return c.Status(http.StatusOK).JSON(about{Name: "millrace", Version: api, Manager: version, Health: "/readyz", Docs: DocsURL})
	}
}
