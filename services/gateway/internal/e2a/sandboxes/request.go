package sandboxes

import (
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// request is the body of a create. Its order and names determine the content of an idempotency key.
type request struct {
	Template         string
	Agent            string
	LLMKey           string
	Task             string
	Model            string
	SessionID        string
	WireVersion      *uint64
	IdleTimeout      *uint64 // seconds
	MaxLifetime      *uint64 // seconds
	WorkspaceEnabled bool
	AppID            string
	CapsetID         string
	AppJSON          json.RawMessage
	PersistenceURL   string
	PersistenceAuth  string
	EnvVars          map[string]string
	AgentEnv         map[string]string
	AgentCmd         string
	Metadata         map[string]json.RawMessage
}

const wantSeconds = "a positive integer of seconds"

// decode reads a request.
func decode(c *fiber.Ctx) (r request, err error) {
	const wantEnv = "an object of strings"
	err = body.Decode(c,
		body.Field{Name: "template", Into: &r.Template},
		body.Field{Name: "agent", Into: &r.Agent},
		body.Field{Name: "llm_key", Into: &r.LLMKey},
		body.Field{Name: "task", Into: &r.Task},
		body.Field{Name: "model", Into: &r.Model},
		body.Field{Name: "session_id", Into: &r.SessionID},
		body.Field{Name: "wire_version", Into: &r.WireVersion, Want: "1 or 2"},
		body.Field{Name: "idle_timeout_seconds", Into: &r.IdleTimeout, Want: wantSeconds},
		body.Field{Name: "max_lifetime_seconds", Into: &r.MaxLifetime, Want: wantSeconds},
		body.Field{Name: "workspace_enabled", Into: &r.WorkspaceEnabled, Want: "true or false"},
		body.Field{Name: "app_id", Into: &r.AppID},
		body.Field{Name: "capset_id", Into: &r.CapsetID},
		body.Field{Name: "app_json", Into: &r.AppJSON, Want: "an object"},
		body.Field{Name: "persistence_url", Into: &r.PersistenceURL},
		body.Field{Name: "persistence_auth_header", Into: &r.PersistenceAuth},
		body.Field{Name: "env_vars", Into: &r.EnvVars, Want: wantEnv},
		body.Field{Name: "agent_env", Into: &r.AgentEnv, Want: wantEnv},
		body.Field{Name: "agent_cmd", Into: &r.AgentCmd},
		body.Field{Name: "metadata", Into: &r.Metadata, Want: "an object"},
	)
	return r, err
}

// check validates all that needs neither a lookup nor a part that may not exist yet.
func (r *request) check() error {
	for _, check := range []func() error{r.checkRequired, r.checkTimes, r.checkApp, r.checkAgent, r.checkEnv, r.checkPersistence} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *request) checkRequired() error {
	switch {
	case r.Template == "":
		return body.Invalid("template is required")
	case r.WorkspaceEnabled && r.AppID == "":
		return body.Invalid("app_id is required with workspace_enabled")
	case r.WorkspaceEnabled && r.CapsetID == "":
		return body.Invalid("capset_id is required with workspace_enabled")
	case r.WorkspaceEnabled:
		_, err := workspace.ParseScope("", r.AppID, r.CapsetID)
		return err
	}
	return nil
}

// checkPersistence checks the header. The URL is checked by package outbound.
func (r *request) checkPersistence() error {
	return body.CheckHeader("persistence_auth_header", r.PersistenceAuth)
}

// Times in seconds.
const (
	defaultIdle = 60
	maxLifetime = 7200 // and the default
	warning     = 10 * time.Second
)

func (r *request) checkTimes() error {
	for name, v := range map[string]*uint64{"idle_timeout_seconds": r.IdleTimeout, "max_lifetime_seconds": r.MaxLifetime} {
		if v != nil && *v == 0 {
			return body.Invalid(name + " must be " + wantSeconds)
		}
	}
	return nil
}

// schedule returns the times of a sandbox that is created now. It does not wait for free capacity.
func (r *request) schedule(now time.Time) sandbox.Schedule {
	end := now.Add(seconds(r.MaxLifetime, maxLifetime))
	return sandbox.Schedule{Idle: seconds(r.IdleTimeout, defaultIdle), PlaceBy: now, HardEnd: end, Warning: min(warning, end.Sub(now))}
}

// seconds returns a number of seconds, at most that of the longest lifetime, after which no timeout
// has an effect.
func seconds(n *uint64, otherwise uint64) time.Duration {
	if n == nil {
		n = &otherwise
	}
	return time.Duration(min(*n, maxLifetime)) * time.Second
}

// supported returns Unimplemented for a valid request for what does not exist.
func (r *request) supported() error {
	if _, ok := sizes[r.Template]; !ok {
		return unimplemented("unknown_template", "the template is not one of standard, browser, cua and canvas")
	}
	switch r.Agent {
	case "", deictic, claudeCode, codex:
	default:
		return unimplemented("unknown_agent", "the agent is not one of deictic, claude-code and codex")
	}
	return nil
}

func unimplemented(code, msg string) error {
	return kind.Coded(kind.Unimplemented, "create sandbox", "", code, msg)
}
