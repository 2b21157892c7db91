package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	address   = ":50005"                  // address of the SDK's getMcpUrl
	tokenFile = "/etc/mcp-gateway/.token" // file that the SDK's getMcpToken reads
)

var me = &mcp.Implementation{Name: "mcp-gateway", Version: "1"}

// gateway runs the servers and serves clients until ctx ends. It calls ready when all
// servers respond and clients can connect.
func gateway(ctx context.Context, raw []byte, token string, ready func()) error {
	entries, err := parse(raw)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("another gateway is running: %w", err)
	}
	defer listener.Close()
	running, end := context.WithCancel(ctx)
	defer end()
	all := mcp.NewServer(me, nil)
	m := &merged{server: all, tools: map[string]string{}, prompts: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		session, err := connect(ctx, running, name, &e, mcp.NewClient(me, nil))
		if err != nil {
			return err
		}
		defer session.Close()
		if err := m.add(ctx, name, session); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	if err := writeToken(token); err != nil {
		return err
	}
	s := &http.Server{Handler: handler(all, token), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	ready()
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// writeToken writes the token to the file from which later clients of the sandbox read it.
func writeToken(token string) error {
	if err := os.MkdirAll(filepath.Dir(tokenFile), 0o700); err != nil {
		return err
	}
	fresh := tokenFile + ".new"
	if err := os.WriteFile(fresh, []byte(token), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, tokenFile)
}

// handler returns a handler that serves /mcp to requests with the token.
func handler(all *mcp.Server, token string) http.Handler {
	want := sha256.Sum256([]byte(token))
	// The sandbox gateway connects from localhost with the host name that clients use.
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return all }, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the gateway's token is required: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		serve.ServeHTTP(w, r)
	})
	return mux
}

// merged combines the servers into one. If two tools or prompts have the same name, the
// second one gets its repository's name as prefix; of two resources with the same URI, the
// first is used.
type merged struct {
	server         *mcp.Server
	tools, prompts map[string]string // owners by name
	resources      []string
}

var unnameable = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// uniqueName returns name, with a prefix if it is taken, and records its owner.
func uniqueName(taken map[string]string, owner, name string) string {
	for taken[name] != "" {
		name = unnameable.ReplaceAllString(owner[strings.LastIndexByte(owner, '/')+1:], "_") + "_" + name
	}
	taken[name] = owner
	return name
}

// addSafely calls do, which adds something of a server. It skips what violates MCP, such as a
// tool without a schema: for that the SDK panics.
func addSafely(owner, name string, do func()) {
	defer func() {
		if why := recover(); why != nil {
			fmt.Fprintf(os.Stderr, "mcp-gateway: %q: %q skipped: %v\n", owner, name, why)
		}
	}()
	do()
}

// add adds the tools, prompts and resources that a server has now. Later additions are not
// served.
func (m *merged) add(ctx context.Context, owner string, s *mcp.ClientSession) error {
	can := s.InitializeResult().Capabilities
	if can.Tools != nil {
		if err := m.addTools(ctx, owner, s); err != nil {
			return err
		}
	}
	if can.Prompts != nil {
		for p, err := range s.Prompts(ctx, nil) {
			if err != nil {
				return err
			}
			theirs, ours := p.Name, *p
			ours.Name = uniqueName(m.prompts, owner, p.Name)
			get := func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				return s.GetPrompt(ctx, &mcp.GetPromptParams{Name: theirs, Arguments: r.Params.Arguments})
			}
			addSafely(owner, theirs, func() { m.server.AddPrompt(&ours, get) })
		}
	}
	if can.Resources != nil {
		return m.addResources(ctx, owner, s)
	}
	return nil
}

func (m *merged) addTools(ctx context.Context, owner string, s *mcp.ClientSession) error {
	for t, err := range s.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		theirs, ours := t.Name, *t
		ours.Name = uniqueName(m.tools, owner, t.Name)
		call := func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.CallTool(ctx, &mcp.CallToolParams{Name: theirs, Arguments: r.Params.Arguments})
		}
		addSafely(owner, theirs, func() { m.server.AddTool(&ours, call) })
	}
	return nil
}

func (m *merged) addResources(ctx context.Context, owner string, s *mcp.ClientSession) error {
	read := func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return s.ReadResource(ctx, &mcp.ReadResourceParams{URI: r.Params.URI})
	}
	for res, err := range s.Resources(ctx, nil) {
		if err != nil {
			return err
		}
		if !slices.Contains(m.resources, res.URI) {
			m.resources = append(m.resources, res.URI)
			addSafely(owner, res.URI, func() { m.server.AddResource(res, read) })
		}
	}
	for t, err := range s.ResourceTemplates(ctx, nil) {
		if err != nil {
			return err
		}
		if !slices.Contains(m.resources, t.URITemplate) {
			m.resources = append(m.resources, t.URITemplate)
			addSafely(owner, t.URITemplate, func() { m.server.AddResourceTemplate(t, read) })
		}
	}
	return nil
}
