package deictic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/services/hostd/internal/deictic/llm"
)

// plannerName is the name of the agent that distributes tasks.
const plannerName = "planner"

// team makes the agents of a turn.
type team struct {
	specs []spec
	box   *toolbox
	model model
	out   listener
	warn  func(format string, args ...any)
	dir   string
}

// lead returns the agent that gets the prompt: the only one, or a planner.
func (t *team) lead() *agent {
	if len(t.specs) == 1 {
		return t.member(&t.specs[0])
	}
	var list strings.Builder
	names := make([]string, len(t.specs))
	for i := range t.specs {
		s := &t.specs[i]
		names[i] = s.Name
		fmt.Fprintf(&list, "- %s (%s): %s\n", s.Name, s.Capability, s.Description)
	}
	const system = `You are the planner of a team of agents. You have no tools of your own but "delegate", which gives a task to one agent and returns its answer. ` +
		`An agent sees only the task that you write, so include everything that it needs. All agents work on the same files. ` +
		"When the request is fulfilled, answer it yourself.\n\nAgents:\n"
	params, _ := json.Marshal(map[string]any{
		"type": "object", "required": []string{"agent", "task"},
		"properties": map[string]any{
			"agent": map[string]any{"type": "string", "enum": names, "description": "Name of the agent."},
			"task":  map[string]any{"type": "string", "description": "The complete task."},
		},
	})
	delegate := tool{
		Declaration: llm.Declaration{Name: "delegate", Description: "Give a task to an agent and return its answer.", Schema: params},
		run: with(func(ctx context.Context, a *struct{ Agent, Task string }) (string, error) {
			return t.delegate(ctx, a.Agent, a.Task)
		}),
	}
	return &agent{name: plannerName, system: system + list.String(), tools: []tool{delegate}, model: t.model, out: t.out}
}

// delegate runs a task by an agent of a capability or a name.
func (t *team) delegate(ctx context.Context, name, task string) (string, error) {
	if task == "" {
		return "", errors.New("task is required")
	}
	for _, is := range []func(*spec) bool{func(s *spec) bool { return s.Name == name }, func(s *spec) bool { return s.Capability == name }} {
		for i := range t.specs {
			if is(&t.specs[i]) {
				h := &history{messages: []llm.Message{{Role: llm.User, Text: task}}}
				return t.member(&t.specs[i]).run(ctx, h)
			}
		}
	}
	return "", fmt.Errorf("there is no agent %q", name)
}

func (t *team) member(s *spec) *agent {
	tools, unknown := t.box.tools(s.Tools)
	if len(unknown) > 0 {
		t.warn("agent %s: tools that do not exist: %s", s.Name, strings.Join(unknown, ", "))
	}
	system := "You are an agent in a Linux sandbox. Complete the request with your tools, then answer briefly. The working directory is " + t.dir + "."
	if slices.ContainsFunc(tools, func(t tool) bool { return t.Name == screenshotTool }) {
		system += " It has a desktop with a browser, which you see by screenshots."
	}
	if s.Description != "" {
		system += "\nYour role: " + s.Name + " (" + s.Capability + "): " + s.Description
	}
	return &agent{name: s.Name, system: system, tools: tools, model: t.model, out: t.out}
}
