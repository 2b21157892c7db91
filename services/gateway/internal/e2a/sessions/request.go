package sessions

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/millrace/millrace/events/conversation"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

const (
	defaultTTL   = time.Hour
	maxTTL       = 2 * time.Hour
	maxBundles   = 10
	maxText      = 256 // characters of an id of the client's
	defaultApp   = "e2a-sandbox"
	defaultSet   = "default"
	agentKind    = "deictic"
	maxSetLength = 16 << 10 // bytes of the capability sets
)

var model = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,128}$`)

// create is the body of POST /v1/sessions.
type create struct {
	Terms       conversation.Terms
	TTL         time.Duration
	Persistence persistence
}

// persistence is a backend for what is said in a conversation.
type persistence struct{ url, auth string }

// parseCreate reads the body of POST /v1/sessions. allowed checks the URL in a field.
func parseCreate(raw []byte, allowed func(field, url string) error) (create, error) {
	out := create{Terms: conversation.Terms{App: conversation.App{ID: defaultApp, Set: defaultSet}}}
	var agent, llm, app json.RawMessage
	var ttl *int64
	t := &out.Terms
	err := body.Parse(raw,
		body.Field{Name: "agent", Into: &agent}, body.Field{Name: "template", Into: &t.Template}, body.Field{Name: "llm", Into: &llm},
		body.Field{Name: "secrets", Into: &t.Bundles, Want: "an array of strings"}, body.Field{Name: "app", Into: &app},
		body.Field{Name: "user_id", Into: &t.EndUser}, body.Field{Name: "ttl_seconds", Into: &ttl, Want: "a number of seconds"},
		body.Field{Name: "persistence_url", Into: &out.Persistence.url}, body.Field{Name: "persistence_auth_header", Into: &out.Persistence.auth})
	for _, check := range []func() error{
		func() error { return parseAgent(agent, t) },
		func() error { return checkTemplate(t.Template) },
		func() error { return parseLLM(llm, &t.LLM, allowed) },
		func() error { return parseApp(app, &t.App) },
		func() error { return checkTerms(t) },
		func() error { return out.Persistence.check(allowed) },
		func() error { out.TTL, err = lifetime(ttl); return err },
	} {
		if err == nil {
			err = check()
		}
	}
	return out, err
}

func (p *persistence) check(allowed func(field, url string) error) error {
	if err := body.CheckHeader("persistence_auth_header", p.auth); err != nil || p.url == "" {
		return err
	}
	return allowed("persistence_url", p.url)
}

// parseAgent reads the agent, which may be absent.
func parseAgent(raw json.RawMessage, t *conversation.Terms) error {
	if raw == nil {
		return nil
	}
	name := agentKind
	if err := body.Parse(raw, body.Field{Name: "kind", Into: &name}, body.Field{Name: "version", Into: &t.AgentVersion}); err != nil {
		return within("agent", err)
	}
	if name != agentKind {
		return body.Invalid("agent.kind must be " + agentKind)
	}
	return nil
}

func checkTemplate(name string) error {
	switch name {
	case "standard", "browser", "cua":
		return nil
	}
	return body.Invalid("template must be standard, browser or cua")
}

// parseLLM reads the model of the agent.
func parseLLM(raw json.RawMessage, l *conversation.LLM, allowed func(field, url string) error) error {
	if raw == nil {
		return body.Invalid("llm is required")
	}
	var name, url *string
	err := body.Parse(raw, body.Field{Name: "vendor", Into: &l.Vendor}, body.Field{Name: "model", Into: &name}, body.Field{Name: "base_url", Into: &url})
	if err != nil {
		return within("llm", err)
	}
	switch l.Vendor {
	case "anthropic", "openai", "google", "deepseek":
	default:
		return body.Invalid("llm.vendor must be anthropic, openai, google or deepseek")
	}
	if name != nil {
		if l.Model = *name; !model.MatchString(l.Model) {
			return body.Invalid("llm.model must be 1 to 128 of a-z A-Z 0-9 . _ -")
		}
	}
	if url != nil {
		l.BaseURL = *url
		return allowed("llm.base_url", l.BaseURL)
	}
	return nil
}

// parseApp reads the application of the client, which may be absent.
func parseApp(raw json.RawMessage, a *conversation.App) error {
	if raw == nil {
		return nil
	}
	var sets json.RawMessage
	if err := body.Parse(raw, body.Field{Name: "id", Into: &a.ID}, body.Field{Name: "set_id", Into: &a.Set}, body.Field{Name: "capability_sets", Into: &sets}); err != nil {
		return within("app", err)
	}
	if len(sets) > maxSetLength || sets != nil && sets[0] != '{' {
		return body.Invalid("app.capability_sets must be an object of at most 16384 bytes")
	}
	if a.Capabilities = string(sets); a.ID == "" || a.Set == "" || len(a.ID) > maxText || len(a.Set) > maxText {
		return body.Invalid("app.id and app.set_id must have 1 to 256 characters")
	}
	return nil
}

// checkTerms checks what is left.
func checkTerms(t *conversation.Terms) error {
	switch {
	case t.EndUser == "":
		return body.Invalid("user_id is required")
	case len(t.EndUser) > maxText:
		return body.Invalid("user_id must have at most 256 characters")
	case len(t.Bundles) > maxBundles:
		return body.Invalid("secrets must name at most 10 bundles")
	case len(t.AgentVersion) > maxText:
		return body.Invalid("agent.version must have at most 256 characters")
	}
	return nil
}

// lifetime returns the lifetime of a sandbox: longer ones are shortened.
func lifetime(seconds *int64) (time.Duration, error) {
	switch {
	case seconds == nil:
		return defaultTTL, nil
	case *seconds < 1:
		return 0, body.Invalid("ttl_seconds must be at least 1")
	case *seconds > int64(maxTTL/time.Second):
		return maxTTL, nil
	}
	return time.Duration(*seconds) * time.Second, nil
}

// parseResume reads the body of POST /v1/sessions/resume.
func parseResume(raw []byte) (conversation.ID, time.Duration, error) {
	var name string
	var ttl *int64
	err := body.Parse(raw, body.Field{Name: "chat_session_id", Into: &name}, body.Field{Name: "ttl_seconds", Into: &ttl, Want: "a number of seconds"})
	if err == nil && name == "" {
		err = body.Invalid("chat_session_id is required")
	}
	if err != nil {
		return "", 0, err
	}
	d, err := lifetime(ttl)
	if err != nil {
		return "", 0, err
	}
	id, err := conversation.ParseID(name)
	return id, d, err
}

// within names the object of an error.
func within(name string, err error) error { return body.Invalid(name + ": " + kind.Message(err)) }
