package agentrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/millrace/millrace/events/bootstrap"
)

// agentProgram is the program of the agent deictic in templates that have one.
const agentProgram = "/usr/local/bin/agent"

// maxArgument is the maximum size of a task that is an argument. The kernel accepts 128 KiB.
const maxArgument = 100 << 10

// program is what an agent runs.
type program struct {
	argv  []string
	stdin string
}

// programOf returns the program of a configuration.
func (a *agent) programOf(values map[string]string) (program, error) {
	task, model := values["TASK"], values["LLM_MODEL"]
	var p program
	if cmd := values["AGENT_CMD"]; cmd != "" {
		p.argv = []string{cmd}
		return p, nil
	}
	switch kind := values["AGENT_TYPE"]; kind {
	case "deictic":
		p.argv = []string{bootstrap.Program, bootstrap.AgentArg, a.config}
		if _, err := os.Stat(agentProgram); err == nil {
			p.argv = []string{agentProgram}
		}
		return p, nil
	case "claude-code":
		p.argv = append([]string{"claude", "--print", "--dangerously-skip-permissions"}, modelArgs(model)...)
	case "codex":
		p.argv = append([]string{"codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"}, modelArgs(model)...)
		if url := values["OPENAI_BASE_URL"]; url != "" {
			p.argv = append(p.argv, "--config", fmt.Sprintf("openai_base_url=%q", url))
		}
		if id := values["SESSION_ID"]; id != "" {
			p.argv = append(p.argv, "resume", id)
		}
	default:
		return p, fmt.Errorf("the agent %q is not known", kind)
	}
	return p.withTask(task, values["AGENT_TYPE"]), nil
}

func modelArgs(model string) []string {
	if model == "" {
		return nil
	}
	return []string{"--model", model}
}

// withTask returns p with a task as its last argument, or as its input if the task is larger than an
// argument may be.
func (p program) withTask(task, kind string) program {
	if len(task) <= maxArgument {
		p.argv = append(p.argv, "--", task)
		return p
	}
	if p.stdin = task; kind == "codex" {
		p.argv = append(p.argv, "-")
	}
	return p
}

// variables are the names under which the programs expect the key of the model, and what they need to
// run as the user of a sandbox.
func variables(values map[string]string) map[string]string {
	key := values["LLM_KEY"]
	out := map[string]string{}
	switch values["AGENT_TYPE"] {
	case "claude-code":
		out = map[string]string{"ANTHROPIC_API_KEY": key, "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1"}
	case "codex":
		out = map[string]string{"OPENAI_API_KEY": key, "CODEX_API_KEY": key}
	}
	for name := range out {
		if values[name] != "" { // the client's own
			delete(out, name)
		}
	}
	return out
}

// notFound and notRun are the exit codes of programs that could not be run, as shells have them.
const (
	notRun   = 126
	notFound = 127
)

func startCode(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return notFound
	}
	return notRun
}
