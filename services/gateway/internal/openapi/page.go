package openapi

import (
	"bytes"
	"html/template"

	"github.com/gofiber/fiber/v2"
)

// text is the page of reference. It loads nothing from elsewhere.
const text = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Millrace: API</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
td { padding: .1rem 1rem .1rem 0; vertical-align: top }
code { font-size: .9em }
</style>
<h1>Millrace: API</h1>
<p>The full document, with bodies and credentials: <a href="/openapi.yaml">openapi.yaml</a>, <a href="/openapi.json">openapi.json</a>.</p>
{{range .}}<h2>{{.Tag}}</h2>
<table>
{{range .Routes}}<tr><td><code>{{.Method}}</code><td><code>{{.Path}}</code><td>{{.Summary}}
{{end}}</table>
{{end}}</html>
`

// section is the routes of a family.
type section struct {
	Tag    string
	Routes []Route
}

// page serves the document as a page.
func page(c *fiber.Ctx) error {
	all, err := Routes()
	if err != nil {
		return err
	}
	var sections []section
	for _, r := range all {
		if n := len(sections); n == 0 || sections[n-1].Tag != r.Tag {
			sections = append(sections, section{Tag: r.Tag})
		}
		last := &sections[len(sections)-1]
		last.Routes = append(last.Routes, r)
	}
	t, err := template.New("page").Parse(text)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, sections); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return c.Send(out.Bytes())
}
