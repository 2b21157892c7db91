package hostd

import (
	"context"

	"github.com/millrace/millrace/services/hostd/internal/sidecar"
)

// MCPGateway gives the path of the static program that a template has as mcp-gateway:
// that beside this one, or one that is built from source, which tell hears of.
func MCPGateway(ctx context.Context, tell func(msg string, args ...any)) (string, error) {
	return sidecar.MCPGateway().Build(ctx, tell)
}
