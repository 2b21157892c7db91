package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// aRepository redirects git from github.com to a directory and creates a repository there.
func aRepository(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	top := t.TempDir()
	for k, v := range map[string]string{
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "url.file://" + top + "/.insteadOf", "GIT_CONFIG_VALUE_0": "https://github.com/",
		"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.com",
	} {
		t.Setenv(k, v)
	}
	dir := filepath.Join(top, name)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "server"), []byte("tools"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "x"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, out)
		}
	}
}

// A server's directory exists only after its installCmd succeeded; an existing one is
// unchanged.
func TestPrepare(t *testing.T) {
	const name = "github/some/server"
	aRepository(t, "some/server")
	dir := filepath.Join(t.TempDir(), name)
	e := entry{Install: "cat server && echo no >&2 && exit 3"}
	err := prepare(t.Context(), dir, name, &e)
	if err == nil || !strings.Contains(err.Error(), "installCmd") || !strings.Contains(err.Error(), "no") {
		t.Errorf("an installCmd that fails: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory exists: %v", err)
	}
	e = entry{Install: `echo "$(cat server) $WORD" > installed`, Env: map[string]string{"WORD": "a 'word'"}}
	for range 2 {
		if err := prepare(t.Context(), dir, name, &e); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "installed")); err != nil || string(got) != "tools a 'word'\n" {
			t.Errorf("installed file: %q, %v", got, err)
		}
		e.Install = "false"
	}
	if err := prepare(t.Context(), dir+"2", "github/no/body", &e); err == nil || !strings.Contains(err.Error(), "clone") {
		t.Errorf("a missing repository: %v", err)
	}
}

// odd is an MCP server with invalid tools and resources among valid ones.
func odd(in io.Reader, out io.Writer) {
	answers := map[string]string{
		"initialize":               `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"odd","version":"1"}}`,
		"tools/list":               `{"tools":[{"name":"bare"},{"name":"list","inputSchema":{"type":"array"}},{"name":"good","inputSchema":{"type":"object"}}]}`,
		"resources/list":           `{"resources":[{"uri":"%zz","name":"bad"},{"uri":"file:///good","name":"good"}]}`,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"file:///{","name":"bad"}]}`,
	}
	for d := json.NewDecoder(in); ; {
		var request struct {
			ID     json.RawMessage
			Method string
		}
		if d.Decode(&request) != nil {
			return
		}
		answer := `"error":{"code":-32601,"message":"method not found"}`
		if known, ok := answers[request.Method]; ok {
			answer = `"result":` + known
		}
		if request.ID != nil {
			io.WriteString(out, `{"jsonrpc":"2.0","id":`+string(request.ID)+","+answer+"}\n") //nolint:errcheck // the client reports it
		}
	}
}

// Tools and resources that violate MCP are skipped, and the others are served.
func TestInvalidToolsAreSkipped(t *testing.T) {
	theirIn, ourOut := io.Pipe()
	ourIn, theirOut := io.Pipe()
	go odd(theirIn, theirOut)
	theirs, err := mcp.NewClient(me, nil).Connect(t.Context(), &mcp.IOTransport{Reader: ourIn, Writer: ourOut}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirOut.Close(); theirs.Close() })
	m := &merged{server: mcp.NewServer(me, nil), tools: map[string]string{}, prompts: map[string]string{}}
	if err := m.add(t.Context(), "github/a/odd", theirs); err != nil {
		t.Fatal(err)
	}
	a, b := mcp.NewInMemoryTransports()
	if _, err := m.server.Connect(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(me, nil).Connect(context.WithoutCancel(t.Context()), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tools, err := client.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "good" {
		t.Errorf("tools %+v, %v", tools, err)
	}
	resources, err := client.ListResources(t.Context(), nil)
	if err != nil || len(resources.Resources) != 1 || resources.Resources[0].URI != "file:///good" {
		t.Errorf("resources %+v, %v", resources, err)
	}
}
