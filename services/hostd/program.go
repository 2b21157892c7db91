package hostd

import (
	"context"

	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// MCPGateway returns the path of the static program mcp-gateway for templates: the one beside
// this program, or one built from source, with progress reported through report.
func MCPGateway(ctx context.Context, report func(msg string, args ...any)) (string, error) {
	return helperbin.MCPGateway().Build(ctx, report)
}
