package httperr_test

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
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

func TestHandlerHidesInternalDetails(t *testing.T) {
	tests := []struct {
		name string
		err  error
		code int
		body string
		log  bool
	}{
		{"not found", kind.New(kind.NotFound, "find", "x", "sandbox not found"), 404, `{"code":404,"message":"sandbox not found","error_code":"not_found"}`, false},
		{"wrapped", fmt.Errorf("outer: %w", kind.New(kind.Exhausted, "", "", "no room")), 409, `{"code":409,"message":"no room","error_code":"exhausted"}`, false},
		{"unavailable", &kind.Error{Kind: kind.Unavailable, Msg: "try again", Err: errors.New("nats://secret")}, 503, `{"code":503,"message":"try again","error_code":"unavailable"}`, true},
		{"internal", kind.Wrap(kind.Internal, "op", "id", errors.New("secret")), 500, `{"code":500,"message":"internal","error_code":"internal"}`, true},
		{"any other", errors.New("secret"), 500, `{"code":500,"message":"internal","error_code":"internal"}`, true},
		{"the router's", fiber.ErrMethodNotAllowed, 405, `{"code":405,"message":"Method Not Allowed","error_code":"method_not_allowed"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			app := fiber.New(fiber.Config{ErrorHandler: httperr.Handler(slog.New(slog.NewTextHandler(&log, nil)))})
			app.Get("/x", func(*fiber.Ctx) error { return tt.err })
			resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/x?api_key=canary", nil))
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

// Every kind has a status; only Internal is 500.
func TestEveryKindHasAStatus(t *testing.T) {
	for k := kind.Internal; !strings.HasPrefix(k.String(), "kind "); k++ {
		if got := httperr.Status(k); got < 400 || got > 599 || (got == 500) != (k == kind.Internal) {
			t.Errorf("Status(%s) = %d", k, got)
		}
	}
}
