package sandboxes

import (
	"encoding/json"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/millrace/millrace/events/kind"
)

// No body of a create fails in another way than Invalid or Unimplemented, and one that is accepted stays
// within the limits.
func FuzzRequest(f *testing.F) {
	for _, raw := range []string{
		`{"template":"standard"}`, `{"template":"zzz","agent":"zzz","llm_key":"k"}`, `{"template":"cua","idle_timeout_seconds":18446744073709551615}`,
		`{"template":"standard","env_vars":{"A":"b"},"agent_env":{"B":"c"},"metadata":{"a":[1e999],"b":"\ud800"}}`,
		`{"template":"standard","metadata":{"user_id":7,"x":null},"workspace_enabled":true,"app_id":"a","capset_id":"b"}`,
		`{"template":"standard","wire_version":1,"app_json":{"capability_sets":[{"agents":[{"tools":["a"]},{}]}]}}`,
		`{"template":"standard","agent_cmd":"/home/user/\u0000","persistence_auth_header":"a\r\nb"}`,
	} {
		f.Add([]byte(raw))
	}
	app := fiber.New()
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := app.AcquireCtx(&fasthttp.RequestCtx{})
		defer app.ReleaseCtx(c)
		c.Request().SetBody(raw)
		r, err := decode(c)
		if err == nil {
			err = r.check()
		}
		var values map[string]string
		var asJSON []string
		if err == nil {
			values, asJSON, err = r.metadata("usr_1")
		}
		if err != nil {
			if !kind.Is(err, kind.Invalid) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if err := r.supported(); err != nil && !kind.Is(err, kind.Unimplemented) {
			t.Errorf("%q: %v", raw, err)
		}
		if values[metaUser] != "usr_1" {
			t.Errorf("%q: of user %q", raw, values[metaUser])
		}
		for _, name := range asJSON {
			if !json.Valid([]byte(values[name])) {
				t.Errorf("%q: metadata %q is not JSON", raw, values[name])
			}
		}
	})
}
