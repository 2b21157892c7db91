package family

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

const keys = KeyHeader | KeyBearer

// The parts.
var (
	// E2B's control plane, which also has all paths without a row.
	e2b       = Part{Family: E2B, Credentials: keys}
	templates = Part{Family: E2B, Credentials: keys, EncodedSlash: true}
	links     = with(templates, func(p *Part) { p.Credentials |= LinkSignature; p.Body = Streamed })
	hidden    = Part{Family: E2B, Credentials: Public}
	// E2B's data plane.
	envd     = Part{Family: E2B, Credentials: keys | SandboxHeader, Query: true, Sandbox: Running}
	health   = Part{Family: E2B, Credentials: Public, Query: true}
	records  = with(envd, func(p *Part) { p.Sandbox = Resumed })
	input    = with(envd, func(p *Part) { p.Body = Streamed })
	duplex   = with(envd, func(p *Part) { p.Body = Duplex })
	signed   = with(envd, func(p *Part) { p.Credentials |= FileSignature; p.Body = Streamed })
	contexts = with(envd, func(p *Part) { p.Credentials |= TrafficHeader })
	volumes  = Part{Family: E2B, Credentials: keys | VolumeBearer, Errors: httperr.Named}
	upload   = with(volumes, func(p *Part) { p.Body = Streamed })

	ours     = Part{Family: Millrace, Credentials: keys | KeyQuery, Query: true}
	commands = with(ours, func(p *Part) { p.Credentials |= SandboxHeader })
	shared   = with(ours, func(p *Part) { p.Credentials |= ShareHeader })
	metrics  = with(commands, func(p *Part) { p.Sandbox = Running })
	public   = Part{Family: Millrace, Credentials: Public}

	e2a       = Part{Family: E2A, Credentials: KeyBearer, Errors: httperr.E2A, APIHost: true}
	catalogue = with(e2a, func(p *Part) { p.Catalogue = true })
	e2aFiles  = with(e2a, func(p *Part) { p.Body = Streamed })
	runtime   = with(e2a, func(p *Part) { p.Runtime = true; p.Credentials = SessionToken })
	signUp    = with(e2a, func(p *Part) { p.Credentials = Public })
	tenant    = with(e2a, func(p *Part) { p.Credentials |= UserRead })
	file      = with(e2a, func(p *Part) { p.Credentials = Public; p.Body = Streamed; p.PathToken = true })
	user      = with(e2a, func(p *Part) { p.Credentials = UserBearer })
	backendAI = Part{Family: BackendAI, Credentials: PairSignature, Errors: httperr.Problem, APIHost: true}
	form      = with(backendAI, func(p *Part) { p.Body = Streamed })
	versions  = with(backendAI, func(p *Part) { p.Credentials = Public })
	codex     = Part{Family: Codex, Credentials: KeyBearer | SandboxBearer | SandboxQuery, Errors: httperr.Text, Origin: OwnOrigin, APIHost: true}
	forwarded = Part{Family: Port, Credentials: Public, Errors: httperr.Proxy, Body: Streamed, Origin: Unchecked}
)

// with returns a changed copy of p.
func with(p Part, change func(*Part)) Part {
	change(&p)
	return p
}

// row assigns the paths below path to a part. The segment * of a path matches any segment; $
// matches the end.
type row struct {
	path string
	part Part
}

// table is the routing table. Of the rows that match a path, the one with the most segments
// applies; a row for / would be e2b.
var table = []row{
	// Our own.
	{"/$", public},
	{"/livez", public},
	{"/readyz", public},
	{"/.well-known", public},
	{"/docs/$", public},
	{"/console", public},
	{"/openapi.json", public},
	{"/openapi.yaml", public},
	{"/metrics", metrics}, // of the service, and of the sandbox that a request names
	{"/commands", commands},
	{"/v1", ours},
	// What onlookers may read.
	{"/v1/processes/*/$", shared},
	{"/v1/processes/*/events/$", shared},
	{"/v1/processes/*/export.cast/$", shared},
	{"/v1/processes/*/screen/$", shared},
	{"/v1/processes/*/screen/live/$", shared},
	{"/v1/processes/*/search/$", shared},
	{"/v1/processes/*/text/$", shared},
	{"/v1/processes/*/timeline/$", shared},
	{"/v1/shares/self/$", shared},
	{"/v1/timeline/*/$", shared},

	// e2a.
	{"/v1/api-keys", user},
	{"/v1/auth", signUp},
	{"/v1/billing", user},
	{"/v1/billing/webhook/$", signUp},
	{"/v1/dashboard", user},
	{"/v1/sandboxes", e2a},
	{"/v1/sandboxes/*/files", e2aFiles},
	{"/v1/secrets", e2a},
	{"/v1/sessions", e2a},
	{"/v1/sessions/*/ws/$", runtime},
	{"/v1/templates", catalogue},
	{"/v1/tenants", tenant},
	{"/v1/tenants/$", signUp},
	{"/v1/tenants/verify/$", signUp},
	{"/v1/usage", e2a},
	{"/v1/workspace-files/*/$", file}, // links, which their handler checks
	{"/v1/workspaces", user},

	// E2B.
	{"/templates", templates},
	{"/templates/uploads/*/*/$", links},
	{"/v2/templates", templates},
	{"/events/sandboxes", e2b},
	{"/events/webhooks", e2b},
	{"/volumecontent", volumes},
	{"/volumecontent/*/file", upload},
	{"/health", health}, // of the service, and of the sandbox that a request names
	{"/envs", envd},
	{"/files", envd},
	{"/files/$", signed},
	{"/filesystem.Filesystem", envd},
	{"/process.Process", envd},
	{"/process.Process/Connect", records},
	{"/process.Process/SendInput", input},
	{"/process.Process/StreamInput", duplex},
	{"/execute", envd},
	{"/contexts", contexts},
	// Internal routes of envd, which must not exist.
	{"/collapse", hidden},
	{"/freeze", hidden},
	{"/fsfreeze", hidden},
	{"/fsthaw", hidden},
	{"/init", hidden},
	{"/unfreeze", hidden},
	{"/upgrade", hidden},

	// Backend.AI.
	{"/v4", backendAI},
	{"/v4/$", versions},
	{"/v4/*/*/upload/$", form},
	{"/v5", backendAI},
	{"/v5/$", versions},
	{"/v5/*/*/upload/$", form},
	{"/v6", backendAI},
	{"/v6/$", versions},
	{"/v6/*/*/upload/$", form},
	{"/v7", backendAI},
	{"/v7/$", versions},
	{"/v7/*/*/upload/$", form},
	{"/v8", backendAI},
	{"/v8/$", versions},
	{"/v8/*/*/upload/$", form},
	{"/v9", backendAI},
	{"/v9/$", versions},
	{"/v9/*/*/upload/$", form},
	{"/session", backendAI},
	{"/session/*/upload/$", form},
	{"/kernel", backendAI},
	{"/kernel/*/upload/$", form},
	{"/stream", backendAI},
	{"/events", backendAI},
	// Not served, but clients expect errors in their form.
	{"/admin", backendAI},
	{"/auth", backendAI},
	{"/config", backendAI},
	{"/folders", backendAI},
	{"/image", backendAI},
	{"/manager", backendAI},
	{"/resource", backendAI},
	{"/scaling-groups", backendAI},
	{"/services", backendAI},
	{"/template", backendAI},
	{"/socket.io", versions}, // an emulation of WebSocket, which does not exist

	// codex, which also has upgrades at /.
	{"/codex", codex},
}

// byFirst are the rows by the first segment of their paths, the most specific ones first. Their
// paths lack that segment.
var byFirst = index(table)

func index(table []row) map[string][]row {
	out := make(map[string][]row)
	for _, r := range table {
		first, rest, _ := strings.Cut(strings.TrimPrefix(r.path, "/"), "/")
		if first == "$" {
			first, rest = "", "$"
		}
		out[first] = append(out[first], row{rest, r.part})
	}
	for _, rows := range out {
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(segments(b.path), segments(a.path)) })
	}
	return out
}

func segments(path string) int {
	if path == "" {
		return 0
	}
	return 1 + strings.Count(path, "/")
}

// lookUp returns the part of a path without the outer slashes.
func lookUp(path string) Part {
	first, rest, _ := strings.Cut(path, "/")
	for _, r := range byFirst[first] {
		if matches(r.path, rest) {
			return r.part
		}
	}
	return e2b
}

// matches reports whether a path is at or below the one of a row.
func matches(pattern, path string) bool {
	for pattern != "" {
		var want, got string
		want, pattern, _ = strings.Cut(pattern, "/")
		if want == "$" {
			return path == ""
		}
		got, path, _ = strings.Cut(path, "/")
		if got != want && (want != "*" || got == "") {
			return false
		}
	}
	return true
}

// Paths returns the paths of all rows.
func Paths() []string {
	out := make([]string, len(table))
	for i, r := range table {
		out[i] = r.path
	}
	return out
}
