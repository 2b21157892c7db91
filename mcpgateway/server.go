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

// repositories is the directory of the servers' repositories, by name. Existing ones are
// used unchanged, so a template can include servers.
const repositories = "/var/lib/mcp-gateway"

const maxTail = 2 << 10 // bytes of a command's last output in an error

// prepare clones a server's repository and runs its installCmd, unless the directory
// exists.
func prepare(ctx context.Context, dir, name string, e *entry) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	fresh, r := dir+".new", unprivileged()
	if err := r.own(fresh); err != nil {
		return err
	}
	clone := r.command(ctx, fresh, "git", "clone", "--quiet", "--depth=1", "--", "https://github.com/"+name[len("github/"):], ".")
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
		return fmt.Errorf("%w: %s", err, out[max(0, len(out)-maxTail):])
	}
	return nil
}

// tail forwards output to standard error and keeps its end.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	t.end = t.end[max(0, len(t.end)-maxTail):]
	return os.Stderr.Write(p)
}

// String returns the end of the output so far.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}

// connectTimeout is the time for a server's first response.
const connectTimeout = 50 * time.Second

// connect starts a server, which runs until running ends.
func connect(ctx, running context.Context, name string, e *entry, client *mcp.Client) (*mcp.ClientSession, error) {
	dir := filepath.Join(repositories, name)
	if err := prepare(ctx, dir, name, e); err != nil {
		return nil, err
	}
	cmd := e.command(running, e.Run, dir)
	output := &tail{}
	cmd.Stderr = output
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("%q: runCmd is not an MCP server: %w: %s", name, err, output)
	}
	return session, nil
}
