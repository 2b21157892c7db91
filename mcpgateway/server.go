package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// repositories is where the repositories of servers are, under their names. What is
// there already is used as it is, so that a template can bring servers.
const repositories = "/var/lib/mcp-gateway"

const lastWords = 2 << 10 // bytes of what a command said that an error has

// prepare makes a server's directory, unless it is there: its repository, after its
// installCmd.
func prepare(ctx context.Context, dir, name string, e *entry) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	fresh, who := dir+".new", unprivileged()
	if err := who.own(fresh); err != nil {
		return err
	}
	clone := who.command(ctx, fresh, "git", "clone", "--quiet", "--depth=1", "--", "https://github.com/"+name[len("github/"):], ".")
	clone.Env = append(clone.Env, "GIT_TERMINAL_PROMPT=0")
	if err := do(clone); err != nil {
		return fmt.Errorf("%q: clone: %w", name, err)
	}
	if e.Install != "" {
		if err := do(e.command(ctx, e.Install, fresh)); err != nil {
			return fmt.Errorf("%q: installCmd: %w", name, err)
		}
	}
	return os.Rename(fresh, dir)
}

func (e *entry) command(ctx context.Context, line, dir string) *exec.Cmd {
	cmd := unprivileged().command(ctx, dir, "/bin/sh", "-c", line)
	for k, v := range e.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

func do(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out[max(0, len(out)-lastWords):])
	}
	return nil
}

// tail keeps the end of what is written to it, and hands all on.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	t.end = t.end[max(0, len(t.end)-lastWords):]
	return os.Stderr.Write(p)
}

// String is the end, of what may still be written.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}

// connectTimeout bounds how long a server may take to answer at first.
const connectTimeout = 50 * time.Second

// connect starts a server. life is the gateway's: a server lives as long.
func connect(ctx, life context.Context, name string, e *entry, client *mcp.Client) (*mcp.ClientSession, error) {
	dir := filepath.Join(repositories, name)
	if err := prepare(ctx, dir, name, e); err != nil {
		return nil, err
	}
	cmd := e.command(life, e.Run, dir)
	said := &tail{}
	cmd.Stderr = said
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("%q: runCmd does not answer as an MCP server: %w: %s", name, err, said)
	}
	return session, nil
}
