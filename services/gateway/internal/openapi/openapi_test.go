package openapi_test

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/openapi"
)

// Each operation is listed once, with its family and a summary, on the page, too.
func TestRoutes(t *testing.T) {
	all, err := openapi.Routes()
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	openapi.Register(app)
	read := func(path string) string {
		t.Helper()
		res, err := app.Test(httptest.NewRequest("GET", path, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %s, %v", path, res.Status, err)
		}
		return string(raw)
	}
	page, text := read("/docs"), read("/openapi.yaml")
	seen := make(map[string]bool)
	for _, r := range all {
		at := r.Method + " " + r.Path
		if seen[at] || r.Tag == "" || r.Summary == "" {
			t.Errorf("%+v: listed twice, or without a family or a summary", r)
		}
		seen[at] = true
		if !strings.Contains(page, "<code>"+r.Path+"</code>") {
			t.Errorf("%s is not on the page", r.Path)
		}
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(read("/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if doc.Paths[r.Path][strings.ToLower(r.Method)] == nil {
			t.Errorf("%s %s is not in the JSON document", r.Method, r.Path)
		}
	}
	if len(all) < 150 || !strings.HasPrefix(text, "openapi: 3.1.0\n") {
		t.Errorf("%d operations", len(all))
	}
}

// Each reference leads to a component.
func TestReferencesExist(t *testing.T) {
	raw, err := openapi.Text()
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	_, components, _ := strings.Cut(text, "\ncomponents:\n")
	for _, m := range regexp.MustCompile(`"#/components/\w+/(\w+)"`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(components, "\n    "+m[1]+":\n") {
			t.Errorf("no component %s", m[1])
		}
	}
}
