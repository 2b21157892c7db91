package catalogue_test

import (
	"io"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/e2a/catalogue"
)

const deictic = `{"templates":[{"app_id":"deictic","name":"Deidict (default agent)","description":"General-purpose multi-agent orchestration; recommended default.",` +
	`"capability_sets":[{"set_id":"default","name":"Default","tools":["file_read","file_write","shell","search"]}]}]}`

// E-275, E-279, E-280.
func TestRoutes(t *testing.T) {
	var failed error
	app := fiber.New(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		failed = err
		return c.SendStatus(404)
	}})
	catalogue.Register(app)
	for path, want := range map[string]string{"/v1/templates": deictic, "/v1/templates/deictic": deictic, "/v1/templates/Deictic": "", "/v1/templates/codex": "", "/v1/templates/a%2Fb": ""} {
		failed = nil
		res, err := app.Test(httptest.NewRequest("GET", path, nil))
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if want == "" {
			if kind.Of(failed) != kind.NotFound || kind.Code(failed) != "template_not_found" {
				t.Errorf("%s: %v", path, failed)
			}
		} else if string(raw) != want || res.StatusCode != 200 {
			t.Errorf("%s: %s %s", path, res.Status, raw)
		}
	}
}

// E-276: every entry is found by the lookup of sessions, with each of its sets.
func TestEveryEntryIsFound(t *testing.T) {
	for _, a := range catalogue.Apps() {
		got, ok := catalogue.Find(a.ID)
		if !ok || len(a.CapabilitySets) == 0 {
			t.Errorf("%+v: %+v, %v", a, got, ok)
		}
		for _, s := range a.CapabilitySets {
			if _, ok := got.Set(s.ID); !ok {
				t.Errorf("%s has no set %s", a.ID, s.ID)
			}
		}
	}
	if a, ok := catalogue.Find(""); ok {
		t.Errorf("found %+v", a)
	}
}
