package sandboxes

import (
	"path"
	"strings"

	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
)

// The agents.
const (
	deictic    = "deictic"
	claudeCode = "claude-code"
	codex      = "codex"
)

const maxAgentCmd = 512 // bytes

// checkAgent checks the agent's settings. Those without an agent are ignored, but for the command.
func (r *request) checkAgent() error {
	if err := r.checkAgentCmd(); err != nil || r.Agent == "" {
		return err
	}
	if r.LLMKey == "" {
		return body.Invalid("llm_key is required with agent")
	}
	switch r.Agent {
	case deictic:
		if r.Model == "" {
			return body.Invalid("model is required with agent deictic")
		}
	case claudeCode:
		if r.Model != "" && !strings.HasPrefix(r.Model, "claude") {
			return body.Invalid("model must start with claude for agent claude-code")
		}
	case codex:
		if r.Model != "" && !strings.HasPrefix(r.Model, "gpt") && !strings.HasPrefix(r.Model, "o") {
			return body.Invalid("model must start with gpt or o for agent codex")
		}
	}
	return nil
}

func (r *request) checkAgentCmd() error {
	cmd := r.AgentCmd
	switch {
	case cmd == "":
	case len(cmd) > maxAgentCmd:
		return body.Invalid("agent_cmd is longer than 512 bytes")
	case !strings.HasPrefix(cmd, "/home/user/") && !strings.HasPrefix(cmd, "/workspace/"), path.Clean(cmd) != cmd, strings.ContainsRune(cmd, 0):
		return body.Invalid("agent_cmd must be an absolute path below /home/user/ or /workspace/")
	}
	return nil
}
