package recordtest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/auth"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/httpconn"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Headers that set the principal of a test's request; the default is Tenant.
const (
	HeaderTenant  = "X-Test-Tenant"
	HeaderSandbox = "X-Test-Sandbox"
)

// Serve serves a surface on loopback until the test ends, and returns its URL.
func Serve(t testing.TB, streams *stream.Streams, register func(fiber.Router)) string {
	t.Helper()
	app := fiber.New(fiber.Config{
		DisableStartupMessage: true, ReadBufferSize: 16 << 10,
		ErrorHandler: route.ErrorHandler(slog.New(slog.DiscardHandler)),
	})
	app.Use(func(c *fiber.Ctx) error {
		p := core.Principal{Tenant: Tenant, Sandbox: sandbox.ID(strings.Clone(c.Get(HeaderSandbox)))}
		if v := c.Get(HeaderTenant); v != "" {
			p.Tenant = strings.Clone(v)
		}
		auth.Set(c, p)
		return c.Next()
	})
	register(app)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		app.Listener(httpconn.Listen(l))
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		streams.Drain(ctx)
		app.ShutdownWithTimeout(time.Second)
		<-done
	})
	return "http://" + l.Addr().String()
}

// Request is an HTTP request of a test.
type Request struct {
	Method, Path, Body string
	Header             map[string]string
}

// Open sends a request and returns the response with an unread body. The test fails without a
// response within a minute.
func Open(t testing.TB, url string, r Request) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, r.Method, url+r.Path, strings.NewReader(r.Body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Do sends a request and reads the whole response.
func Do(t testing.TB, url string, r Request) (*http.Response, string) {
	t.Helper()
	resp := Open(t, url, r)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v after %q", r.Method, r.Path, err, body)
	}
	return resp, string(body)
}
