package bootstrap

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/process"
)

// The program and its arguments.
const (
	Program = "/proc/self/exe" // the forked child of a shim is its program until it executes another
	Arg     = "e2a-runtime"    // first argument of both roles
	update  = "config"         // second argument of a process that writes the configuration
	written = "configured"     // second argument of a runtime whose configuration others have written
)

// Tag is the tag of the runtime's process.
const Tag = "runtime"

// Port is the port of the runtime on the loopback of its sandbox, unless another program has it.
const Port = 49950

// Files in a sandbox. Directory is in memory and in no snapshot.
const (
	Directory   = "/app/config"
	EnvFile     = "env.json"
	UpgradeFile = "upgrade.json"
)

// SharedDirectory returns the directory that takes the place of Directory in a sandbox without
// isolation, which has no mounts of its own.
func SharedDirectory(sandbox string) string { return "/dev/shm/millrace-config-" + sandbox }

// Prefixes of variables.
const (
	secretPrefix   = "E2A_SECRET_"
	platformPrefix = "E2A_PLATFORM_"
)

// maxPart is the maximum size of the values that one process carries. The command that starts it
// has at most process.MaxSpecSize bytes, which sealing increases by a third.
const maxPart = 512 << 10

// Config is the configuration of a conversation.
type Config struct {
	Secrets  map[string]string // values of its bundles
	Platform map[string]string // the platform's own values
}

// Values returns all values. The platform's take precedence.
func (c Config) Values() map[string]string {
	all := make(map[string]string, len(c.Secrets)+len(c.Platform))
	maps.Copy(all, c.Secrets)
	maps.Copy(all, c.Platform)
	return all
}

// Start returns the processes that start a runtime. set names this configuration among those of the
// conversation, such as by its generations, in characters of a file name.
func Start(c Config, set string) []process.Spec {
	tag := Tag
	runtime := process.Spec{Cmd: Program, Args: []string{Arg}, Tag: &tag, Stdin: true, Helper: true}
	parts := c.split()
	if len(parts) == 1 {
		runtime.Env = parts[0]
		return []process.Spec{runtime}
	}
	runtime.Args = append(runtime.Args, written)
	return append(updates(parts, set), runtime)
}

// Update returns the processes that replace the configuration of a running runtime.
func Update(c Config, set string) []process.Spec { return updates(c.split(), set) }

func updates(parts []map[string]string, set string) []process.Spec {
	specs := make([]process.Spec, len(parts))
	for i, env := range parts {
		args := []string{Arg, update, set, strconv.Itoa(i + 1), strconv.Itoa(len(parts))}
		specs[i] = process.Spec{Cmd: Program, Args: args, Env: env, Helper: true}
	}
	return specs
}

// split returns the variables for as few processes as can carry them, at least one. A name of both
// kinds is the platform's.
func (c Config) split() []map[string]string {
	part := map[string]string{}
	parts := []map[string]string{part}
	size := 0
	all := c.Values()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		prefix := secretPrefix
		if _, ok := c.Platform[name]; ok {
			prefix = platformPrefix
		}
		n := len(prefix) + len(name) + len(all[name])
		if size+n > maxPart && size > 0 {
			part, size = map[string]string{}, 0
			parts = append(parts, part)
		}
		part[prefix+name] = all[name]
		size += n
	}
	return parts
}

// Parse returns the values in the environment of a process that Start or Update described, and the
// other variables.
func Parse(environ []string) (values map[string]string, others []string) {
	var c Config
	c.Secrets, c.Platform = map[string]string{}, map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if secret, ok := strings.CutPrefix(name, secretPrefix); ok {
			c.Secrets[secret] = value
		} else if own, ok := strings.CutPrefix(name, platformPrefix); ok {
			c.Platform[own] = value
		} else {
			others = append(others, v)
		}
	}
	return c.Values(), others
}

// Role is what a process was started for.
type Role struct {
	Runtime bool // a runtime, otherwise a process of an agent or one that writes values
	Agent   Agency
	Desktop bool // the desktop of a sandbox without a conversation
	Write   bool // whether the values in its environment are the configuration or a part of it

	Set      string // of a process that writes values: see [Start]
	Part, Of int    // number of its part from 1, and of all parts
}

// ParseRole parses the arguments after Arg.
func ParseRole(args []string) (r Role, ok bool) {
	switch {
	case len(args) == 0:
		return Role{Runtime: true, Write: true}, true
	case len(args) == 1 && args[0] == written:
		return Role{Runtime: true}, true
	case len(args) == 1 && agencies[args[0]] != NoAgent:
		return Role{Agent: agencies[args[0]]}, true
	case len(args) == 1 && args[0] == DesktopTag:
		return Role{Desktop: true}, true
	case len(args) == 4 && args[0] == update && validSet(args[1]):
		part, err := strconv.Atoi(args[2])
		of, ofErr := strconv.Atoi(args[3])
		return Role{Write: true, Set: args[1], Part: part, Of: of}, err == nil && ofErr == nil && part >= 1 && part <= of
	}
	return Role{}, false
}

// validSet reports whether set can be a part of a file's name.
func validSet(set string) bool {
	if set == "" || len(set) > 128 {
		return false
	}
	for _, c := range set {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// The agent is another role of the program: Program AgentArg PATH, with the path of the configuration. It runs
// the task of the configuration, or with AgentTurn as a third argument the turn of a conversation whose
// prompt is its input.
const (
	AgentArg  = "agent"
	AgentTurn = "turn"
)

// AgentControl is the descriptor from which the process of a turn reads: each byte interrupts the turn. Its end
// means nothing.
const AgentControl = 3

// AgentScreenshot begins a line of a turn's process that is not a frame: the base64 of a PNG follows.
const AgentScreenshot = "screenshot:"

// AgentHistory is the path, below the home directory, of the record of a conversation with the agent.
const AgentHistory = ".deictic/history.jsonl"
