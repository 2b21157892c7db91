package gateway

import (
	"github.com/millrace/millrace/services/gateway/internal/e2a/dataplane"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// newE2ADataPlane returns the surface for commands, files and logs in e2a's sandboxes.
func (s *server) newE2ADataPlane(found dataplane.Sandboxes, g record.Gateway) *dataplane.Handler {
	return dataplane.New(dataplane.Config{
		Sandboxes: found, Commands: g, Logs: record.NewObserver(s.ops), Files: g, Streams: s.streams, Clients: s.conversations, Agents: s.agents, Mounts: s.workspaces.mounts,
	})
}
