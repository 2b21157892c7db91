package route_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/route"
)

func TestPartReadsHostHeadersAndUpgrade(t *testing.T) {
	tests := []struct {
		name, host, path string
		headers          map[string]string
		want             family.Name
	}{
		{"a path", "localhost", "/v1/processes", nil, family.Millrace},
		{"a sandbox's port in the Host", "3000-i1.localhost", "/v1/processes", nil, family.Port},
		{"a sandbox's port in headers", "localhost", "/v1/processes", map[string]string{"E2b-Sandbox-Id": "i1", "E2b-Sandbox-Port": "3000"}, family.Port},
		{"an invalid port in headers", "localhost", "/v1/processes", map[string]string{"E2b-Sandbox-Id": "i1", "E2b-Sandbox-Port": "0"}, family.Port},
		{"a port of no sandbox", "localhost", "/v1/processes", map[string]string{"E2b-Sandbox-Port": "3000"}, family.Millrace},
		{"the Host overrides the headers", "49983-i1.localhost", "/v1/processes", map[string]string{"E2b-Sandbox-Id": "i1", "E2b-Sandbox-Port": "3000"}, family.Millrace},
		{"a WebSocket", "localhost", "/", map[string]string{"Connection": "keep-alive, Upgrade", "Upgrade": "WebSocket"}, family.Codex},
		{"another upgrade", "localhost", "/", map[string]string{"Connection": "Upgrade", "Upgrade": "tcp"}, family.Millrace},
		{"an Upgrade header for another hop", "localhost", "/", map[string]string{"Upgrade": "websocket"}, family.Millrace},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := fiber.New()
			var got *family.Part
			app.Use(func(c *fiber.Ctx) error {
				if got = route.Part(c); got != route.Part(c) {
					t.Error("the part changed")
				}
				return nil
			})
			req := httptest.NewRequest(http.MethodGet, tt.path, nil)
			req.Host = tt.host
			for k, v := range tt.headers {
				req.Header.Set(k, v)
			}
			if _, err := app.Test(req); err != nil {
				t.Fatal(err)
			}
			if got.Family != tt.want {
				t.Errorf("Part = %s, want %s", got.Family, tt.want)
			}
		})
	}
}

func TestErrorHandlerHidesInternalDetails(t *testing.T) {
	tests := []struct {
		name, path string
		err        error
		code       int
		body       string
		log        bool
	}{
		{"not found", "/x", kind.New(kind.NotFound, "find", "x", "sandbox not found"), 404, `{"code":404,"message":"sandbox not found","error_code":"not_found"}`, false},
		{"wrapped", "/x", fmt.Errorf("outer: %w", kind.New(kind.Exhausted, "", "", "no room")), 409, `{"code":409,"message":"no room","error_code":"exhausted"}`, false},
		{"unavailable", "/x", &kind.Error{Kind: kind.Unavailable, Msg: "try again", Err: errors.New("nats://secret")}, 503, `{"code":503,"message":"try again","error_code":"unavailable"}`, true},
		{"internal", "/x", kind.Wrap(kind.Internal, "op", "id", errors.New("secret")), 500, `{"code":500,"message":"internal","error_code":"internal"}`, true},
		{"any other", "/x", errors.New("secret"), 500, `{"code":500,"message":"internal","error_code":"internal"}`, true},
		{"of e2a", "/v1/sessions", errors.New("secret"), 500, `{"error":"internal","message":"internal"}`, true},
		{"of codex", "/codex/i1", errors.New("secret"), 500, "internal\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			app := fiber.New(fiber.Config{ErrorHandler: route.ErrorHandler(slog.New(slog.NewTextHandler(&log, nil)))})
			app.Get("/*", func(*fiber.Ctx) error { return tt.err })
			resp, err := app.Test(httptest.NewRequest(http.MethodGet, tt.path+"?api_key=canary&token=canary", nil))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.code || string(body) != tt.body {
				t.Errorf("%d %s\nwant %d %s", resp.StatusCode, body, tt.code, tt.body)
			}
			if logged := log.Len() > 0; logged != tt.log || strings.Contains(log.String(), "canary") {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

// An error of a request for a port names the sandbox and the port, as E2B's proxy does.
func TestErrorsOfPortsNameThem(t *testing.T) {
	app := fiber.New(fiber.Config{ErrorHandler: route.ErrorHandler(slog.New(slog.DiscardHandler))})
	app.Get("/", func(*fiber.Ctx) error { return fiber.ErrBadRequest })
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Host = "3000-i1.localhost"
	resp, err := app.Test(req)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"sandboxId":"i1","message":"Bad Request","port":3000,"code":400}`
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
		t.Errorf("%s, %v; want %s", body, err, want)
	}
}
