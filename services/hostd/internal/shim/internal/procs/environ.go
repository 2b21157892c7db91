package procs

import (
	"maps"
	"os"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
)

// environ returns the environment of a process: the account's variables, then the
// sandbox's, then its own. From the shim's environment come only PATH and sandboxMark, by
// which the direct driver finds processes that hide from it.
func (t *Table) environ(a *users.Account, own map[string]string) map[string]string {
	env := map[string]string{"PATH": defaultPath, "HOME": a.Home, "USER": a.Name, "LOGNAME": a.Name}
	if path := os.Getenv("PATH"); path != "" {
		env["PATH"] = path
	}
	t.mu.Lock()
	t.cfg.Network.SetEnv(env)
	for k, v := range t.env {
		env[k] = v
	}
	t.mu.Unlock()
	for k, v := range own {
		env[k] = v
	}
	addMark(env)
	return env
}

// exactEnviron returns the environment of a process that gets its own variables only. With
// the direct driver, sandboxMark is added nevertheless: without it a process could hide.
func exactEnviron(own map[string]string) map[string]string {
	env := maps.Clone(own)
	if env == nil {
		env = make(map[string]string)
	}
	addMark(env)
	return env
}

func addMark(env map[string]string) {
	if mark := os.Getenv(sandboxMark); mark != "" {
		env[sandboxMark] = mark
	}
}

const sandboxMark = "MILLRACE_SANDBOX_ID"

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
