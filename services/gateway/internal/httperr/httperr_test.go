package httperr_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

func TestShapes(t *testing.T) {
	const (
		jsonUTF8 = "application/json; charset=utf-8"
		problem  = "application/problem+json"
		page     = "text/html; charset=utf-8"
		text     = "text/plain; charset=utf-8"
	)
	missing := kind.New(kind.NotFound, "find", "x", "sandbox not found")
	tests := []struct {
		name  string
		shape httperr.Shape
		agent string
		err   error
		code  int
		mime  string
		body  string
	}{
		{"E2B", httperr.E2B, "", missing, 404, jsonUTF8, `{"code":404,"message":"sandbox not found","error_code":"not_found"}`},
		{"E2B, the router's", httperr.E2B, "", fiber.ErrMethodNotAllowed, 405, jsonUTF8, `{"code":405,"message":"Method Not Allowed","error_code":"method_not_allowed"}`},
		{"a name", httperr.Named, "", missing, 404, jsonUTF8, `{"code":"not_found","message":"sandbox not found"}`},
		{"E2B's proxy", httperr.Proxy, "", fiber.ErrBadRequest, 400, jsonUTF8, `{"sandboxId":"","message":"Bad Request","code":400}`},
		{"E2B's proxy, to a browser", httperr.Proxy, "Mozilla/5.0", fiber.ErrBadRequest, 400, page, ""},
		{"e2a", httperr.E2A, "", missing, 404, jsonUTF8, `{"error":"not_found","message":"sandbox not found"}`},
		{"e2a, the router's", httperr.E2A, "", fiber.ErrRequestEntityTooLarge, 413, jsonUTF8, `{"error":"request_entity_too_large","message":"Request Entity Too Large"}`},
		{"Backend.AI", httperr.Problem, "", fiber.ErrNotFound, 404, problem, `{"type":"https://api.backend.ai/probs/url-not-found","title":"Not Found","msg":"Not Found"}`},
		{"Backend.AI, any 4xx", httperr.Problem, "", fiber.ErrRequestEntityTooLarge, 413, problem, `{"type":"https://api.backend.ai/probs/generic-bad-request","title":"Request Entity Too Large","msg":"Request Entity Too Large"}`},
		{"Backend.AI, 429", httperr.Problem, "", fiber.ErrTooManyRequests, 429, problem, `{"type":"https://api.backend.ai/probs/rate-limit-exceeded","title":"Too Many Requests","msg":"Too Many Requests"}`},
		{"Backend.AI, internal", httperr.Problem, "", errors.New("secret"), 500, problem, `{"type":"https://api.backend.ai/probs/internal-server-error","title":"Internal Server Error","msg":"internal"}`},
		{"text", httperr.Text, "", fmt.Errorf("outer: %w", missing), 404, text, "sandbox not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := fiber.New()
			app.Get("/x", func(c *fiber.Ctx) error {
				b := httperr.Of(tt.err)
				return tt.shape.Write(c, &b)
			})
			req := httptest.NewRequest(http.MethodGet, "/x", nil)
			req.Header.Set("User-Agent", tt.agent)
			resp, err := app.Test(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if mime := resp.Header.Get("Content-Type"); resp.StatusCode != tt.code || mime != tt.mime || tt.body != "" && string(body) != tt.body {
				t.Errorf("%d %s %s\nwant %d %s %s", resp.StatusCode, mime, body, tt.code, tt.mime, tt.body)
			}
		})
	}
}

// A 401 without a code of its own has one where clients require it.
func TestShapesMakeACode(t *testing.T) {
	for shape, want := range map[httperr.Shape]string{
		httperr.E2B: `{"code":401,"message":"no"}`, httperr.Named: `{"code":"unauthenticated","message":"no"}`, httperr.E2A: `{"error":"unauthenticated","message":"no"}`,
	} {
		app := fiber.New()
		app.Get("/x", func(c *fiber.Ctx) error { return shape.Write(c, &httperr.Body{Code: 401, Message: "no"}) })
		resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/x", nil))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
			t.Errorf("shape %d: %s, %v; want %s", shape, body, err, want)
		}
	}
}

// Every kind has a status; only Internal is 500.
func TestEveryKindHasAStatus(t *testing.T) {
	for k := kind.Internal; !strings.HasPrefix(k.String(), "kind "); k++ {
		if got := httperr.Status(k); got < 400 || got > 599 || (got == 500) != (k == kind.Internal) {
			t.Errorf("Status(%s) = %d", k, got)
		}
	}
}
