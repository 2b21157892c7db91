package sandboxes

import (
	"encoding/json"

	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// mcpBody is the MCP servers of a sandbox, each an object. The SDK passes them to the
// template's mcp-gateway itself, so here they are only validated and not stored: they may
// contain secrets.
type mcpBody map[string]map[string]json.RawMessage

const (
	maxMCPServers = 64
	maxMCPBytes   = 64 << 10 // of all names and values: they must fit into one argument of a process
)

// check rejects what mcp-gateway cannot accept. Its errors contain no values.
func (m mcpBody) check() error {
	if len(m) > maxMCPServers {
		return wire.Invalid("mcp: more than %d servers", maxMCPServers)
	}
	size := 0
	for name, fields := range m {
		if fields == nil {
			return wire.Invalid("mcp: %.64q is not an object", name)
		}
		size += len(name)
		for field, value := range fields {
			size += len(field) + len(value)
		}
	}
	if size > maxMCPBytes {
		return wire.Invalid("mcp: more than %d bytes", maxMCPBytes)
	}
	return nil
}
