package protocol

import (
	"maps"
	"strings"
)

// Shell is the default shell of the sandbox.
type Shell struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// Info is the result of environment/info and part of the result of initialize.
type Info struct {
	Shell                Shell           `json:"shell"`
	Cwd                  string          `json:"cwd"`
	TempDir              string          `json:"tempDir"`
	TemporaryDirectories []string        `json:"temporaryDirectories"`
	Capabilities         map[string]bool `json:"capabilities"`
	ExecutorVersion      string          `json:"executorVersion"`
	ProviderID           string          `json:"providerId"`
	UserHomeDir          string          `json:"userHomeDir"`
	PlatformOS           string          `json:"platformOs"`
	PrependPathDirs      []string        `json:"prependPathDirs"`
}

// The names of the capabilities that may be advertised.
const (
	CapSandboxedFileStreaming = "sandboxedFileStreaming"
	CapFileWriteStreaming     = "fileWriteStreaming"
	CapFSWatchMissing         = "fsWatchMissing"
	CapHTTPHeaderEnvVars      = "httpHeaderEnvVars"
)

// Session is the result of initialize.
type Session struct {
	SessionID       string `json:"sessionId"`
	EnvironmentInfo *Info  `json:"environmentInfo,omitempty"`
}

// Status is the result of environment/status.
type Status struct {
	Status string `json:"status"`
}

// EnvPolicy is how the environment of a process is made from that of the sandbox.
type EnvPolicy struct {
	Inherit               string            `json:"inherit"` // all, core or none
	IgnoreDefaultExcludes bool              `json:"ignoreDefaultExcludes"`
	Exclude               []string          `json:"exclude"`
	Set                   map[string]string `json:"set"`
	IncludeOnly           []string          `json:"includeOnly"`
}

// UnmarshalJSON decodes a policy, all members of which are required.
func (p *EnvPolicy) UnmarshalJSON(raw []byte) error {
	type plain EnvPolicy
	if err := decode(raw, (*plain)(p), "inherit", "ignoreDefaultExcludes", "exclude", "set", "includeOnly"); err != nil {
		return err
	}
	switch p.Inherit {
	case "all", "core", "none":
		return nil
	}
	return bad("inherit must be all, core or none")
}

// core are the variables that a policy with inherit core keeps.
var core = map[string]bool{
	"HOME": true, "LOGNAME": true, "PATH": true, "SHELL": true, "USER": true, "USERNAME": true,
	"TMPDIR": true, "TEMP": true, "TMP": true, "LANG": true, "LC_ALL": true, "LC_CTYPE": true, "TERM": true,
}

// defaultExcludes are the names of variables that often hold credentials.
var defaultExcludes = []string{"*KEY*", "*SECRET*", "*TOKEN*"}

// Environment returns the complete environment of a process: without a policy env alone,
// otherwise the sandbox's variables that the policy keeps, and env over them.
func Environment(policy *EnvPolicy, sandbox, env map[string]string) map[string]string {
	out := make(map[string]string, len(env))
	if policy == nil {
		maps.Copy(out, env)
		return out
	}
	for k, v := range sandbox {
		if policy.inherits(k) {
			out[k] = v
		}
	}
	maps.Copy(out, policy.Set)
	if len(policy.IncludeOnly) > 0 {
		maps.DeleteFunc(out, func(k, _ string) bool { return !matchAny(policy.IncludeOnly, k) })
	}
	maps.Copy(out, env)
	return out
}

func (p *EnvPolicy) inherits(name string) bool {
	switch {
	case p.Inherit == "none", p.Inherit == "core" && !core[strings.ToUpper(name)]:
		return false
	case !p.IgnoreDefaultExcludes && matchAny(defaultExcludes, name):
		return false
	}
	return !matchAny(p.Exclude, name)
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if match(strings.ToUpper(p), strings.ToUpper(name)) {
			return true
		}
	}
	return false
}

// match reports whether s matches a pattern in which * stands for any text and ? for any byte.
// It takes at most len(pattern) times len(s) steps.
func match(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
