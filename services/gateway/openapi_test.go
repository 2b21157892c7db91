package gateway

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/openapi"
)

var (
	parameter = regexp.MustCompile(`:\w+|\{\w+\}|\*`)
	version   = regexp.MustCompile(`^/v[4-9](/|$)`) // of Backend.AI, whose paths the document has once
)

// operation returns the common form of a route of the router and of the document.
func operation(method, path string) string {
	path = parameter.ReplaceAllString(path, "{}")
	if version.MatchString(path) {
		if path = path[len("/v4"):]; path == "" {
			path = "/v6"
		}
	}
	for _, at := range []string{"/kernel", "/stream/kernel"} {
		if rest, ok := strings.CutPrefix(path, at); ok {
			path = strings.Replace(at, "kernel", "session", 1) + rest
		}
	}
	return method + " " + path
}

// Each route is in the OpenAPI document, and each operation of the document is a route.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	all, err := openapi.Routes()
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, r := range all {
		documented[operation(r.Method, r.Path)] = true
	}
	served := make(map[string]bool)
	for _, r := range assembled(t).app.GetRoutes(true) {
		served[operation(r.Method, r.Path)] = true
	}
	for op := range documented {
		if !served[op] {
			t.Errorf("%s is in the document, but is no route", op)
		}
	}
	for op := range served {
		method, path, _ := strings.Cut(op, " ")
		skip := method == http.MethodHead && served[http.MethodGet+" "+path]               // a GET without a body
		skip = skip || strings.HasPrefix(path, "/v1/streams/") && method != http.MethodGet // read-only: 405
		if !documented[op] && !skip {
			t.Errorf("%s is a route, but is not in the document", op)
		}
	}
}
