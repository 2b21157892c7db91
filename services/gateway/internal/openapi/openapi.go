package openapi

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"sigs.k8s.io/yaml"
)

//go:embed spec/*.yaml
var files embed.FS

// Text returns the document.
func Text() ([]byte, error) {
	names, err := fs.Glob(files, "spec/*.yaml")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all.Write(b)
	}
	return all.Bytes(), nil
}

// JSON returns the document as JSON.
func JSON() ([]byte, error) {
	text, err := Text()
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text)
}

// Route is an operation of the document.
type Route struct {
	Method, Path string // the path has parameters in braces
	Tag, Summary string
}

// methods are the names of operations.
var methods = []string{"get", "head", "post", "put", "patch", "delete"}

// Routes returns the operations in the order of the document. It relies on the form in which the files
// are written: a path is indented by two spaces, a method by four, and what belongs to it by six.
func Routes() ([]Route, error) {
	text, err := Text()
	if err != nil {
		return nil, err
	}
	var all []Route
	_, body, _ := strings.Cut(string(text), "\npaths:\n")
	body, _, _ = strings.Cut(body, "\ncomponents:\n")
	path := ""
	for line := range strings.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case indent == 2:
			path = name
		case indent == 4 && slices.Contains(methods, name):
			all = append(all, Route{Method: strings.ToUpper(name), Path: path})
		case indent == 6 && len(all) == 0:
			return nil, fmt.Errorf("%s has no method", path)
		case indent == 6 && name == "tags":
			all[len(all)-1].Tag = strings.Trim(value, " []")
		case indent == 6 && name == "summary":
			all[len(all)-1].Summary = strings.Trim(value, ` "`)
		}
	}
	return all, nil
}

// Register adds the routes.
func Register(r fiber.Router) {
	r.Get("/openapi.yaml", func(c *fiber.Ctx) error {
		text, err := Text()
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, "application/yaml")
		return c.Send(text)
	})
	asJSON := sync.OnceValues(JSON) // the conversion takes milliseconds, and the route is public
	r.Get("/openapi.json", func(c *fiber.Ctx) error {
		raw, err := asJSON()
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSONCharsetUTF8)
		return c.Send(raw)
	})
	r.Get("/docs", page)
}
