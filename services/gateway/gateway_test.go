package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/services/gateway"
	"github.com/millrace/millrace/services/gateway/internal/core/coretest"
)

const (
	key    = "e2b_00112233445566778899"
	bobKey = "e2b_aabbccddeeff00112233"
)

// fixture is a gateway on a socket, with its log and a host.
type fixture struct {
	t    *testing.T
	srv  *eventstest.Server
	log  *events.Log
	view *catalog.View
	host *coretest.Host
	addr string
	logs *bytes.Buffer // read it only after stop
	stop func() error  // drains, once
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	srv := eventstest.Start(t)
	f := &fixture{t: t, srv: srv, log: eventstest.Open(t, srv)}
	f.view = eventstest.View(t, f.log)
	f.host = coretest.Run(t, f.log, f.view)
	if err := f.log.IssueKey(t.Context(), catalog.KeyOf("bob", bobKey, time.Now())); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.serve(gateway.Config{Listener: ln, Public: gateway.PublicConfig{Domain: "localhost:7300"}, Version: "v0"})
	return f
}

func (f *fixture) serve(cfg gateway.Config) {
	f.t.Helper()
	cfg.Log, cfg.View, cfg.APIKey, cfg.KeyPair = f.log, f.view, key, pairs
	f.logs = new(bytes.Buffer) // of this gateway; others of the fixture may still run
	cfg.Slog = slog.New(slog.NewTextHandler(f.logs, nil))
	ready := make(chan net.Addr, 1)
	cfg.Ready = func(a net.Addr) { ready <- a }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gateway.Run(ctx, cfg) }()
	select {
	case a := <-ready:
		f.addr = a.String()
	case err := <-done:
		f.t.Fatalf("gateway: %v", err)
	}
	stopped := false
	f.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	f.t.Cleanup(func() {
		if err := f.stop(); err != nil {
			f.t.Errorf("gateway: %v", err)
		}
	})
}

// answer is a response.
type answer struct {
	code   int
	header http.Header
	body   string
}

// do sends a request; headers come in pairs, and the key is sent unless they contain one. A
// body is sent chunked, as the JS SDK does.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	var r io.Reader
	if body != "" {
		r = io.MultiReader(strings.NewReader(body))
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.addr+path, r)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(raw)}
}

// want fails unless the response has the code and, if body is not empty, the body.
func (a answer) want(t *testing.T, what string, code int, body string) answer {
	t.Helper()
	if a.code != code || body != "" && a.body != body {
		t.Errorf("%s: %d %s\nwant %d %s", what, a.code, a.body, code, body)
	}
	return a
}

// wantError checks that an error body has what E2B's SDKs require: code and message.
func (a answer) wantError(t *testing.T, what string, code int) {
	t.Helper()
	var b struct {
		Code    *int    `json:"code"`
		Message *string `json:"message"`
	}
	err := json.Unmarshal([]byte(a.body), &b)
	if a.code != code || err != nil || b.Code == nil || *b.Code != code || b.Message == nil || *b.Message == "" {
		t.Errorf("%s: %d %s (%v), want %d with code and message", what, a.code, a.body, err, code)
	}
	if ct := a.header.Get("Content-Type"); !strings.HasPrefix(ct, "application/json") {
		t.Errorf("%s: content type %q", what, ct)
	}
}

func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%d %s: %v", a.code, a.body, err)
	}
}

// createdSandbox is a sandbox in an API response.
type createdSandbox struct {
	ID    string `json:"sandboxID"`
	Token string `json:"envdAccessToken"`
}

func (f *fixture) create(body string) createdSandbox {
	f.t.Helper()
	a := f.do("POST", "/v2/sandboxes", body)
	if a.code != http.StatusCreated {
		f.t.Fatalf("create: %d %s", a.code, a.body)
	}
	var m createdSandbox
	a.decode(f.t, &m)
	return m
}

const base = `{"templateID":"base"}`

func TestProbes(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]string{"/livez": "ok", "/readyz": "ready", "/health": "Health check successful"} {
		f.do("GET", path, "", "X-Api-Key", "").want(t, path, 200, want)
	}
}

func TestHosts(t *testing.T) {
	f := newFixture(t)
	var got struct {
		Hosts []map[string]any `json:"hosts"`
	}
	f.do("GET", "/v1/hosts", "").want(t, "hosts", 200, "").decode(t, &got)
	if len(got.Hosts) != 1 || got.Hosts[0]["name"] != "h1" || got.Hosts[0]["alive"] != true || got.Hosts[0]["epoch"] != 7.0 {
		t.Errorf("hosts %v", got.Hosts)
	}
	f.do("GET", "/v1/hosts", "", "X-Api-Key", "").wantError(t, "without a key", 401)
	f.do("GET", "/v1/hosts", "", "X-Api-Key", bobKey).wantError(t, "a tenant", 403)
}

func TestNonLoopbackAddressRequiresAKey(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	err := gateway.Run(t.Context(), gateway.Config{Log: log, Listen: "0.0.0.0:0"})
	if err == nil || !strings.Contains(err.Error(), "API key") {
		t.Errorf("Run = %v, want a refusal", err)
	}
}

// A gateway with ReadyAfter is not ready before that is closed.
func TestReadyAfter(t *testing.T) {
	f := newFixture(t)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	hosted := make(chan struct{})
	f.serve(gateway.Config{Listen: "127.0.0.1:0", ReadyAfter: hosted})
	status := func(path string) int {
		resp, err := http.Get("http://" + f.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if live, ready := status("/livez"), status("/readyz"); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("livez %d, readyz %d before", live, ready)
	}
	close(hosted)
	if ready := status("/readyz"); ready != http.StatusOK {
		t.Errorf("readyz %d after", ready)
	}
}

func TestDrainEndsIdleConnectionsAndRun(t *testing.T) {
	f := newFixture(t)
	// Browsers and connection pools open connections that they may never use.
	unused, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1024)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("an idle connection delayed the drain by %s", d)
	}
}

// A stream that is cut by a drain ends with the position to resume from, and resuming there
// loses nothing.
func TestDrainMakesStreamsReconnect(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.addr+"/commands?sandbox="+m.ID, strings.NewReader(`{"cmd":"sleep","timeout_ms":0}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"start"`) {
		t.Fatalf("%d: first line %q", resp.StatusCode, lines.Text())
	}
	done := make(chan error, 1)
	go func() { done <- f.stop() }()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if !strings.Contains(last, `"type":"reconnect"`) || !strings.Contains(last, `"after":`) {
		t.Errorf("last line %q", last)
	}
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// The log contains no secrets, wherever a client puts them and whatever the response is.
func TestNoSecretsInTheLog(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","envVars":{"S":"canary-env"}}`)
	query := "?follow=false&api_key=" + key + "&token=" + m.Token + "&sandbox=canary-sandbox&signature=canary-signature"
	paths := []string{
		"/", "/nothing", "/sandboxes/" + m.ID, "/commands", "/v1/processes", "/v1/events", "/v1/sessions", "/v1/tenants", "/session/x", "/events/session",
		"/codex/" + m.ID, "/codex/new", "/volumecontent/v1/file", "/files", "/process.Process/List", "/execute", "/health", "/metrics", "/readyz", "/a%5cb",
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", "PUT"} {
			f.do(method, path+query, "{", "X-Api-Key", "")
			f.do(method, path+query, "{", "Host", "3000-"+m.ID+".localhost")
			f.raw(t, method+" "+path+query+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n")
		}
	}
	for _, path := range paths {
		f.raw(t, "GET "+path+query+" HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n")
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{key, m.Token, "canary-"} {
		if strings.Contains(f.logs.String(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}
