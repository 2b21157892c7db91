package sandboxes

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/e2a/body"
	"github.com/millrace/millrace/services/gateway/internal/mounts"
)

// Maximum sizes in bytes of names and values.
const (
	maxEnv      = 256 << 10
	maxMetadata = 64 << 10
)

// reserved are the variables that the platform sets for agents.
var reserved = []string{
	"AGENT_TYPE", "LLM_KEY", "LLM_API_KEY", "LLM_MODEL", "TASK", "SESSION_ID", "AGENT_CMD", "AGENT_SESSION_MODE",
	"E2A_PERSISTENCE_URL", "E2A_PERSISTENCE_AUTH_HEADER",
	"WORKSPACE_USER_ID", "WORKSPACE_APP_ID", "WORKSPACE_CAPSET_ID", "WORKSPACE_MODE",
}

func (r *request) checkEnv() error {
	if err := checkVariables("env_vars", r.EnvVars); err != nil {
		return err
	}
	return checkVariables("agent_env", r.AgentEnv)
}

func checkVariables(field string, env map[string]string) error {
	n := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if slices.Contains(reserved, name) {
			return body.Invalid(field + ": " + name + " is reserved")
		}
		n += len(name) + len(env[name])
	}
	if n > maxEnv {
		return kind.Newf(kind.Invalid, "decode", "", "%s is larger than %d bytes", field, maxEnv)
	}
	return process.CheckEnv("decode", env)
}

// metadata returns the metadata of a tenant's sandbox, and the names of values that are not strings.
func (r *request) metadata(tenant string) (values map[string]string, asJSON []string, err error) {
	values = make(map[string]string, len(r.Metadata)+1)
	n := 0
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		raw := r.Metadata[name]
		if n += len(name) + len(raw); n > maxMetadata {
			return nil, nil, kind.Newf(kind.Invalid, "decode", "", "metadata is larger than %d bytes", maxMetadata)
		}
		if name == metaUser || name == metaSession || name == metaEndUser || name == mounts.Metadata {
			continue
		}
		var text string
		if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
			values[name] = text
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, nil, body.Invalid("metadata must be an object")
		}
		values[name], asJSON = compact.String(), append(asJSON, name)
	}
	values[metaUser] = tenant
	if r.WorkspaceEnabled {
		mounts.Mark(values, workspace.Scope{App: r.AppID, Set: r.CapsetID})
	}
	return values, asJSON, nil
}
