package connect

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/events/process"
)

// E2B's SDK starts MCP servers by a shell command that contains their configuration, and with it
// their credentials. The log seals environments only, so that the command travels there.
const (
	mcpCommand  = "mcp-gateway "
	mcpVariable = "MILLRACE_MCP_COMMAND"
	mcpScript   = `c=$` + mcpVariable + `; unset ` + mcpVariable + `; eval "$c"`
)

// hideMCP moves a shell command that starts MCP servers from the arguments to the environment.
func hideMCP(s *process.Spec) {
	last := len(s.Args) - 1
	if last < 1 || s.Args[last-1] != "-c" || !strings.HasPrefix(s.Args[last], mcpCommand) {
		return
	}
	env := maps.Clone(s.Env)
	if env == nil {
		env = make(map[string]string)
	}
	env[mcpVariable] = s.Args[last]
	s.Env, s.Args = env, append(slices.Clone(s.Args[:last]), mcpScript)
}

// showMCP reverses hideMCP.
func showMCP(s *process.Spec) {
	last := len(s.Args) - 1
	if last < 1 || s.Args[last] != mcpScript {
		return
	}
	s.Args = append(slices.Clone(s.Args[:last]), s.Env[mcpVariable])
	s.Env = maps.Clone(s.Env)
	delete(s.Env, mcpVariable)
}
