package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/millrace/millrace/events/template"
)

// Sandbox is a sandbox as the gateway shows it.
type Sandbox struct {
	ID         string            `json:"sandbox"`
	Template   string            `json:"template"`
	Alias      string            `json:"alias,omitempty"` // name in the create request
	State      string            `json:"state"`
	Outcome    string            `json:"outcome,omitempty"` // how it ended
	Cause      string            `json:"cause,omitempty"`
	Message    string            `json:"message,omitempty"`
	CreatedAt  moment            `json:"created_at"`
	StartedAt  moment            `json:"started_at"`
	PausedAt   moment            `json:"paused_at,omitzero"`
	EndsAt     moment            `json:"ends_at,omitzero"`
	HardEndAt  moment            `json:"hard_end_at,omitzero"`
	EndedAt    moment            `json:"ended_at,omitzero"`
	Host       string            `json:"host,omitempty"`
	Driver     string            `json:"driver,omitempty"`
	Isolation  string            `json:"isolation,omitempty"`
	CPUs       float64           `json:"cpus,omitempty"`
	MemoryMB   uint32            `json:"memory_mb,omitempty"`
	DiskMB     uint32            `json:"disk_mb,omitempty"`
	PIDs       uint32            `json:"pids,omitempty"`
	Internet   bool              `json:"internet"`
	OnTimeout  string            `json:"on_timeout"`
	AutoResume bool              `json:"auto_resume"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// The states of a sandbox.
const (
	StatePaused = "paused"
	StateEnded  = "ended"
	LiveStates  = "starting,running,paused,stopping"
)

// Sandboxes returns the sandboxes in the given states (empty: any state) that have all of
// the metadata, newest first.
func (c *Client) Sandboxes(ctx context.Context, states string, metadata map[string]string) ([]Sandbox, error) {
	q := url.Values{}
	if states != "" {
		q.Set("state", states)
	}
	for name, value := range metadata {
		q.Add("metadata", name+"="+value)
	}
	all := []Sandbox{}
	_, err := c.Call(ctx, &Request{Method: http.MethodGet, Path: "/v1/store/sandboxes", Query: q}, &all)
	return all, err
}

// Sandbox returns a sandbox.
func (c *Client) Sandbox(ctx context.Context, id string) (s Sandbox, err error) {
	_, err = c.Call(ctx, &Request{Method: http.MethodGet, Path: "/v1/store" + SandboxPath(id)}, &s)
	return s, err
}

// TemplateName returns the display name of the sandbox's template: the name in the create
// request, or a short prefix of its id.
func (s *Sandbox) TemplateName() string {
	name := cmp.Or(s.Alias, s.Template)
	if id, err := template.ParseID(name); err == nil {
		name = string(id[:templatePrefix])
	}
	return name
}

const templatePrefix = 12 // hex digits of a template's id in tables

// CreatedSandbox is the answer to a create, as the gateway sends it.
type CreatedSandbox struct {
	ID           string `json:"sandboxID"`
	Template     string `json:"templateID"`
	Alias        string `json:"alias"`
	AccessToken  string `json:"envdAccessToken"`
	TrafficToken string `json:"trafficAccessToken"`
	Domain       string `json:"domain"`

	Warnings []string `json:"warnings,omitempty"` // limits that are not enforced
}
