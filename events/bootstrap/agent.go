package bootstrap

import "github.com/millrace/millrace/events/process"

// AgentTag is the tag of the process of an agent that runs one task.
const AgentTag = "agent"

// Second arguments of the processes of an agent.
const (
	agentRuns  = "agent"       // it runs the task of its configuration
	agentWaits = "agent-waits" // it has no task
	supervises = "agent-watch" // the process that starts the agent's program; the agent's process starts it
	awaits     = "agent-ready" // a process that waits until the agent handles signals
)

// Agency is the part of a process in an agent.
type Agency int

// The parts.
const (
	NoAgent Agency = iota
	RunsAgent
	WaitsForInput
	SupervisesAgent
	AwaitsAgent
)

var agencies = map[string]Agency{agentRuns: RunsAgent, agentWaits: WaitsForInput, supervises: SupervisesAgent, awaits: AwaitsAgent}

// Supervisor returns the arguments with which the process of an agent starts its supervisor.
func Supervisor() []string { return []string{Arg, supervises} }

// StartAgent returns the processes that write the configuration of an agent and start it. An agent
// without a task waits until its sandbox ends.
func StartAgent(c Config, task bool) []process.Spec {
	tag, mode := AgentTag, agentWaits
	if task {
		mode = agentRuns
	}
	return append(Update(c, AgentTag), process.Spec{Cmd: Program, Args: []string{Arg, mode}, Tag: &tag, Helper: true})
}

// AwaitAgent returns a process that ends, with the exit code 0, when the agent of its sandbox handles signals
// or has ended. A signal that arrives earlier ends the agent's process before it can write anything.
func AwaitAgent() process.Spec {
	return process.Spec{Cmd: Program, Args: []string{Arg, awaits}, Helper: true}
}

// Agent reports whether a process is that of an agent, and whether it has a task. Clients cannot
// start such a process: theirs are not helpers.
func Agent(s *process.Spec) (task, ok bool) {
	if !s.Helper || s.Cmd != Program || len(s.Args) != 2 || s.Args[0] != Arg {
		return false, false
	}
	return s.Args[1] == agentRuns, s.Args[1] == agentRuns || s.Args[1] == agentWaits
}
