package gateway

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/workspace"
	e2aworkspaces "github.com/millrace/millrace/services/gateway/internal/e2a/workspaces"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

// workspaceFiles are the files of workspaces, and their routes.
type workspaceFiles struct {
	*e2aworkspaces.Handler

	files *workspace.Store
}

func newWorkspaces(cfg *Config, ops *operations.Operations, streams *stream.Streams) workspaceFiles {
	files := cfg.Log.Workspaces()
	links := workspaces.NewLinks(ops.Core, time.Now)
	return workspaceFiles{e2aworkspaces.New(workspaces.NewInLog(files, links), links, streams), files}
}

// start folds the files until viewing ends, and returns when the view is up to date.
func (w *workspaceFiles) start(ctx, viewing context.Context) error {
	if err := w.files.Start(viewing); err != nil {
		return err
	}
	return w.files.Sync(ctx)
}

// run removes what is not needed any more until ctx ends.
func (w *workspaceFiles) run(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return w.files.Run(ctx) })
}
