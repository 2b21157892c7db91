package app

import (
	"context"

	"github.com/millrace/millrace/events/checkup"
	"github.com/millrace/millrace/internal/cli/command"
)

// examine examines the installation of NATS servers, for doctor --cluster.
func examine(ctx context.Context, url, token string) ([]command.ClusterFinding, error) {
	all, err := checkup.Examine(ctx, url, token)
	out := make([]command.ClusterFinding, len(all))
	for i, f := range all {
		out[i] = command.ClusterFinding(f)
	}
	return out, err
}
