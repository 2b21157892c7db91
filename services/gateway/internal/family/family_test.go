package family_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/family"
	"github.com/millrace/millrace/services/gateway/internal/httperr"
)

func TestOf(t *testing.T) {
	const (
		keys  = family.KeyHeader | family.KeyBearer
		token = keys | family.SandboxHeader
	)
	var (
		public   = family.Part{Family: family.Millrace, Credentials: family.Public}
		ours     = family.Part{Family: family.Millrace, Credentials: keys | family.KeyQuery, Query: true}
		commands = family.Part{Family: family.Millrace, Credentials: token | family.KeyQuery, Query: true}
		metrics  = family.Part{Family: family.Millrace, Credentials: token | family.KeyQuery, Query: true, Sandbox: family.Running}

		control   = family.Part{Family: family.E2B, Credentials: keys}
		templates = family.Part{Family: family.E2B, Credentials: keys, EncodedSlash: true}
		hidden    = family.Part{Family: family.E2B, Credentials: family.Public}
		health    = family.Part{Family: family.E2B, Credentials: family.Public, Query: true}
		envd      = family.Part{Family: family.E2B, Credentials: token, Query: true, Sandbox: family.Running}
		contexts  = family.Part{Family: family.E2B, Credentials: token | family.TrafficHeader, Query: true, Sandbox: family.Running}
		records   = family.Part{Family: family.E2B, Credentials: token, Query: true, Sandbox: family.Resumed}
		input     = family.Part{Family: family.E2B, Credentials: token, Query: true, Sandbox: family.Running, Body: family.Streamed}
		duplex    = family.Part{Family: family.E2B, Credentials: token, Query: true, Sandbox: family.Running, Body: family.Duplex}
		file      = family.Part{Family: family.E2B, Credentials: token | family.FileSignature, Query: true, Sandbox: family.Running, Body: family.Streamed}
		links     = family.Part{Family: family.E2B, Credentials: keys | family.LinkSignature, Body: family.Streamed, EncodedSlash: true}
		volume    = family.Part{Family: family.E2B, Credentials: keys | family.VolumeBearer, Errors: httperr.Named}
		upload    = family.Part{Family: family.E2B, Credentials: keys | family.VolumeBearer, Errors: httperr.Named, Body: family.Streamed}

		e2a       = family.Part{Family: family.E2A, Credentials: family.KeyBearer, Errors: httperr.E2A, APIHost: true}
		catalogue = family.Part{Family: family.E2A, Credentials: family.KeyBearer, Errors: httperr.E2A, APIHost: true, Catalogue: true}
		e2aFiles  = family.Part{Family: family.E2A, Credentials: family.KeyBearer, Errors: httperr.E2A, Body: family.Streamed, APIHost: true}
		runtime   = family.Part{Family: family.E2A, Credentials: family.SessionToken, Errors: httperr.E2A, APIHost: true, Runtime: true}
		signUp    = family.Part{Family: family.E2A, Credentials: family.Public, Errors: httperr.E2A, APIHost: true}
		tenant    = family.Part{Family: family.E2A, Credentials: family.KeyBearer | family.UserRead, Errors: httperr.E2A, APIHost: true}
		user      = family.Part{Family: family.E2A, Credentials: family.UserBearer, Errors: httperr.E2A, APIHost: true}
		backendAI = family.Part{Family: family.BackendAI, Credentials: family.PairSignature, Errors: httperr.Problem, APIHost: true}
		form      = family.Part{Family: family.BackendAI, Credentials: family.PairSignature, Errors: httperr.Problem, Body: family.Streamed, APIHost: true}
		versions  = family.Part{Family: family.BackendAI, Credentials: family.Public, Errors: httperr.Problem, APIHost: true}
		codex     = family.Part{Family: family.Codex, Credentials: family.KeyBearer | family.SandboxBearer | family.SandboxQuery, Errors: httperr.Text, Origin: family.OwnOrigin, APIHost: true}
		port      = family.Part{Family: family.Port, Credentials: family.Public, Errors: httperr.Proxy, Body: family.Streamed, Origin: family.Unchecked}
	)
	const sandboxHost = "49983-i1.example.com"
	tests := []struct {
		host, path string
		port       int
		upgrade    bool
		want       family.Part
	}{
		// Our own.
		{path: "/", want: public},
		{path: "/livez", want: public},
		{path: "/readyz", want: public},
		{path: "/readyz/", want: public},
		{path: "/.well-known/jwks.json", want: public},
		{path: "/openapi.yaml", want: public},
		{path: "/openapi.json", want: public},
		{path: "/docs", want: public},
		{path: "/metrics", want: metrics},
		{path: "/commands", want: commands},
		{path: "/commands/7/stream", want: commands},
		{path: "/v1", want: ours},
		{path: "/v1/hosts", want: ours},
		{path: "/v1/store/sandboxes/i1", want: ours},
		{path: "/v1/store/templates/base", want: ours},
		{path: "/v1/templatesx", want: ours},
		// E2B.
		{path: "/sandboxes", want: control},
		{path: "/v2/sandboxes", want: control},
		{path: "/v3/templates", want: control},
		{path: "/unknown", want: control},
		{path: "/commandsx", want: control},
		{path: "/V1/hosts", want: control},
		{path: "//v1/hosts", want: control},
		{path: "//", want: public}, // the router has no such route
		{path: "/./v1/hosts", want: control},
		{path: "", want: public},
		{path: "*", want: control},
		{path: "/$", want: control},
		{path: "/templates/a%2Fb", want: templates},
		{path: "/v2/templates/x/builds/y", want: templates},
		{path: "/templates/uploads/default/0a", want: links},
		{path: "/templates/uploads/default", want: templates},
		{path: "/templates/uploads/default/0a/0b", want: templates},
		{path: "/events/webhooks/w1", want: control},
		{path: "/events/sandboxes", want: control},
		{path: "/volumecontent/v1/path", want: volume},
		{path: "/volumecontent/v1/file", want: upload},
		{path: "/volumecontent/file", want: volume},
		{path: "/volumecontent//file", want: volume},
		{path: "/health", want: health},
		{path: "/envs", want: envd},
		{path: "/files", want: file},
		{path: "/files/", want: file},
		{path: "/files/compose", want: envd},
		{path: "/process.Process/Start", want: envd},
		{path: "/process.Process/Connect", want: records},
		{path: "/process.Process/SendInput", want: input},
		{path: "/process.Process/StreamInput", want: duplex},
		{path: "/process.Process", want: envd},
		{path: "/process.ProcessX/Connect", want: control},
		{path: "/filesystem.Filesystem/Stat", want: envd},
		{path: "/execute", want: envd},
		{path: "/contexts/c1/restart", want: contexts},
		{path: "/init", want: hidden},
		{path: "/upgrade/", want: hidden},
		// e2a.
		{path: "/v1/sandboxes", want: e2a},
		{path: "/v1/sandboxes/sbx_i1/exec", want: e2a},
		{path: "/v1/sandboxes/sbx_i1/files", want: e2aFiles},
		{path: "/v1/sessions", want: e2a},
		{path: "/v1/sessions/ses_1/ws", upgrade: true, want: runtime},
		{path: "/v1/templates", want: catalogue},
		{path: "/v1/templates/deictic", want: catalogue},
		{path: "/v1/tenants", want: signUp},
		{path: "/v1/tenants/", want: signUp},
		{path: "/v1/tenants/verify", want: signUp},
		{path: "/v1/tenants/verify/x", want: tenant},
		{path: "/v1/tenants/me", want: tenant},
		{path: "/v1/tenants/me/api-keys/key_1", want: tenant},
		{path: "/v1/api-keys/key_1", want: user},
		{path: "/v1/workspaces/app/set/files/a/b", want: user},
		{path: "/v1/workspace-files/token", want: family.Part{Family: family.E2A, Credentials: family.Public, Errors: httperr.E2A, Body: family.Streamed, APIHost: true, PathToken: true}},
		{path: "/v1/workspace-files", want: ours},
		{path: "/v1/dashboard/overview", want: user},
		{path: "/v1/billing/balance", want: user},
		{path: "/v1/workspaces/a/b", want: user},
		{path: "/v1/usage", want: e2a},
		{path: "/v1/auth/login", want: signUp},
		// Backend.AI.
		{path: "/v4", want: versions},
		{path: "/manager/announcement", want: backendAI},
		{path: "/folders", want: backendAI},
		{path: "/socket.io/", want: versions},
		{path: "/v9/session", want: backendAI},
		{path: "/v9/kernel/s1/upload", want: form},
		{path: "/session/s1/upload", want: form},
		{path: "/session/s1/upload/x", want: backendAI},
		{path: "/v10/session", want: control},
		{path: "/session/s1", want: backendAI},
		{path: "/kernel/create", want: backendAI},
		{path: "/stream/session/s1/pty", upgrade: true, want: backendAI},
		{path: "/events/session", want: backendAI},
		// codex.
		{path: "/codex/new", upgrade: true, want: codex},
		{path: "/codex/i1", want: codex},
		{path: "/", upgrade: true, want: codex},
		{path: "/x", upgrade: true, want: control},
		// Sandboxes' hosts.
		{host: "3000-i1.example.com", path: "/v1/hosts", want: port},
		{host: "3000-i1.example.com:7300", path: "/", upgrade: true, want: port},
		{host: "3000-I1-client.example.com", path: "/codex/i1", want: port},
		{host: "my-app.example.com", path: "/codex/i1", want: codex},
		{port: 3000, path: "/v1/hosts", want: port},
		{port: -1, path: "/v1/hosts", want: port}, // rejected by its handler
		{port: 49983, path: "/files", want: file},
		{port: 49999, path: "/execute", want: envd},
		{host: sandboxHost, port: 3000, path: "/files", want: file},
		{host: sandboxHost, path: "/commands", want: commands},
		{host: "49999-i1.example.com", path: "/execute", want: envd},
		{host: sandboxHost, path: "/", upgrade: true, want: public},
		{host: sandboxHost, path: "/codex/i1", want: control},
		{host: sandboxHost, path: "/session", want: control},
		{host: sandboxHost, path: "/v1/sessions", want: control},
	}
	for _, tt := range tests {
		r := family.Request{Host: tt.host, Port: tt.port, Path: tt.path, Upgrade: tt.upgrade}
		if got := family.Of(r); got != tt.want {
			t.Errorf("Of(%+v) =\n%+v, want\n%+v", r, got, tt.want)
		}
	}
}

// E-001: with host names, each route is served on its host.
func TestHosts(t *testing.T) {
	nowhere := family.Part{Credentials: family.Public, Errors: httperr.E2A}
	hosts := family.Hosts{API: "api.example.com", Runtime: "rt.example.com:8443"}
	const ws, control, ours, e2b, codex, probe = "/v1/sessions/ses_1/ws", "/v1/sessions", "/v1/hosts", "/sandboxes", "/codex/i1", "/livez"
	tests := []struct {
		host   string
		served []string
	}{
		{"api.example.com", []string{control, ours, e2b, codex, probe}},
		{"API.Example.com.:443", []string{control, ours, e2b, codex, probe}},
		{"rt.example.com", []string{ws}},
		{"rt.EXAMPLE.com:7300", []string{ws}},
		{"127.0.0.1:7300", []string{ours, e2b, codex, probe}},
		{"[::1]:7300", []string{ours, e2b, codex, probe}},
		{"", []string{ours, e2b, codex, probe}},
		{"xapi.example.com", []string{ours, e2b, codex, probe}},
		{"49983-i1.example.com", []string{ws, control, ours, e2b, codex, probe}}, // of a sandbox, as without names
	}
	for _, tt := range tests {
		for _, path := range []string{ws, control, ours, e2b, codex, probe} {
			r := family.Request{Host: tt.host, Path: path, Hosts: hosts}
			want := family.Of(family.Request{Host: tt.host, Path: path})
			if !slices.Contains(tt.served, path) {
				want = nowhere
			}
			if got := family.Of(r); got != want {
				t.Errorf("%s at %q =\n%+v, want\n%+v", path, tt.host, got, want)
			}
		}
	}
	// A sandbox that a header names does not bring other paths to the runtime's host.
	if got := family.Of(family.Request{Host: "rt.example.com", Port: 3000, Path: "/x", Hosts: hosts}); got != nowhere {
		t.Errorf("a port of a sandbox at the runtime's host: %+v", got)
	}
}

// Credentials are accepted only where the rules of a family allow them.
func TestTheQueryIsLimited(t *testing.T) {
	for path, want := range map[string]family.Credentials{
		"/commands": family.KeyQuery, "/v1/events": family.KeyQuery, "/codex/i1": family.SandboxQuery,
		"/sandboxes": 0, "/files": 0, "/v1/sessions": 0, "/session": 0, "/volumecontent/v/file": 0,
	} {
		if got := family.Of(family.Request{Path: path}).Credentials & (family.KeyQuery | family.SandboxQuery); got != want {
			t.Errorf("%s: %b, want %b", path, got, want)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	r := family.Request{Host: "49983-i0123456789abcdefghij.example.com", Path: "/process.Process/StreamInput"}
	b.ReportAllocs()
	for b.Loop() {
		family.Of(r)
	}
}
