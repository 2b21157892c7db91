package route_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/services/gateway/internal/route"
)

func TestOfFindsSandboxAndPort(t *testing.T) {
	tests := []struct {
		name, host, url, id, port string
		want                      route.Target
	}{
		{"nothing", "localhost:7300", "/", "", "", route.Target{Port: 49983}},
		{"header", "localhost", "/", "iabc", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49983}},
		{"header with port", "localhost", "/", "iabc", "49999", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49999}},
		{"header with an invalid port", "localhost", "/", "iabc", "x", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49983}},
		{"header with client id", "localhost", "/", "iabc-6532622b", "", route.Target{Sandbox: "iabc", Named: "iabc-6532622b", Port: 49983}},
		{"host before header", "3000-idef.localhost", "/commands?sandbox=ighi", "iabc", "4000", route.Target{Sandbox: "idef", Named: "idef", Port: 3000, Host: true}},
		{"header before query", "sandbox.example.com", "/commands?sandbox=ighi", "iabc", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49983}},
		{"invalid header", "localhost", "/", "i.*", "", route.Target{Named: "i.*", Port: 49983}},
		{"host", "49983-iabc.example.com", "/", "", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49983, Host: true}},
		{"host with client id", "3000-iabc-6532622b.example.com:7300", "/", "", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 3000, Host: true}},
		{"host in capitals", "3000-IABC.example.com", "/", "", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 3000, Host: true}},
		{"host of one label", "3000-iabc", "/", "", "", route.Target{Port: 49983}},
		{"host with a large port", "65536-iabc.example.com", "/", "", "", route.Target{Port: 49983}},
		{"host with port 0", "0-iabc.example.com", "/", "", "", route.Target{Port: 49983}},
		{"host with a name before the dash", "my-app.example.com", "/", "", "", route.Target{Port: 49983}},
		{"address", "10.0.0.1:7300", "/", "", "", route.Target{Port: 49983}},
		{"query", "localhost", "/commands?sandbox=iabc", "", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49983}},
		{"invalid query", "localhost", "/commands?sandbox=%3E", "", "", route.Target{Named: ">", Port: 49983}},
		{"query of the data plane", "localhost", "/process.Process/Start?sandbox=iabc", "", "", route.Target{Sandbox: "iabc", Named: "iabc", Port: 49983}},
		{"query of the control plane", "localhost", "/sandboxes?sandbox=iabc", "", "", route.Target{Port: 49983}},
		{"query of another family", "localhost", "/codex/i1?sandbox=iabc", "", "", route.Target{Port: 49983}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := fiber.New(fiber.Config{DisableStartupMessage: true})
			var got route.Target
			app.Get("/*", func(c *fiber.Ctx) error {
				got = route.Of(c)
				if id, ok := route.Sandbox(c); id != got.Sandbox || ok != (id != "") {
					t.Errorf("Sandbox = %q, %v", id, ok)
				}
				return nil
			})
			req := httptest.NewRequest(http.MethodGet, tt.url, nil)
			req.Host = tt.host
			if tt.id != "" {
				req.Header.Set(route.HeaderSandbox, tt.id)
			}
			if tt.port != "" {
				req.Header.Set(route.HeaderPort, tt.port)
			}
			if _, err := app.Test(req); err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("Of = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// An id that Parse accepts is safe in a subject and in a path.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"iabc", "iabc-x", "", "-", ".", "*", ">", "a b", "a\r\n", "\x00", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := route.Parse(s)
		if err != nil {
			return
		}
		for _, c := range string(id) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
				t.Fatalf("Parse(%q) = %q", s, id)
			}
		}
	})
}
