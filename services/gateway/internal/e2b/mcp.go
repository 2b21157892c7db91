package e2b

import "encoding/json"

// mcpBody is the servers that a sandbox is created for, each an object. The SDK hands
// them to the template's mcp-gateway itself (WIRE-E2B 3.2), so that here they are
// looked at and forgotten: they have secrets in them, and nothing here needs those.
type mcpBody map[string]map[string]json.RawMessage

const (
	maxMCPServers = 64
	maxMCPBytes   = 64 << 10 // of all names and values: they are to fit into one argument of a process
)

// check refuses what mcp-gateway could not be handed. Its errors name no value.
func (m mcpBody) check() error {
	if len(m) > maxMCPServers {
		return invalid("mcp: more than %d servers", maxMCPServers)
	}
	size := 0
	for name, fields := range m {
		if fields == nil {
			return invalid("mcp: %.64q is not an object", name)
		}
		size += len(name)
		for field, value := range fields {
			size += len(field) + len(value)
		}
	}
	if size > maxMCPBytes {
		return invalid("mcp: more than %d bytes", maxMCPBytes)
	}
	return nil
}
