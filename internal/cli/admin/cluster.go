package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cli/output"
)

const localNATS = "nats://127.0.0.1:4222"

// examineCluster prints the findings about an installation.
func (a *app) examineCluster(ctx context.Context, servers string, asJSON bool) error {
	if a.Examine == nil {
		return errors.New("--cluster: not supported by this program")
	}
	all, err := a.Examine(ctx, servers, a.Getenv("MILLRACE_NATS_TOKEN"))
	if err != nil {
		return err
	}
	bad := slices.ContainsFunc(all, func(f command.ClusterFinding) bool { return !f.OK })
	if asJSON {
		err = a.WriteJSON(map[string]any{"healthy": !bad, "findings": all})
	} else {
		err = a.writeFindings(all)
	}
	if err == nil && bad {
		return &output.ExitError{Code: 1}
	}
	return err
}

func (a *app) writeFindings(all []command.ClusterFinding) error {
	for _, f := range all {
		mark := "ok  "
		if !f.OK {
			mark = "FAIL"
		}
		if _, err := fmt.Fprintf(a.Out, "%s  %s: %s\n", mark, output.Plain(f.Subject), output.Plain(f.Detail)); err != nil {
			return err
		}
		if f.Do == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.Out, "      %s\n", output.Plain(f.Do)); err != nil {
			return err
		}
	}
	return nil
}
