package gateway

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/attachments"
	e2aworkspaces "github.com/millrace/millrace/services/gateway/internal/e2a/workspaces"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
	"github.com/millrace/millrace/services/gateway/internal/mounts"
	"github.com/millrace/millrace/services/gateway/internal/operations"
	"github.com/millrace/millrace/services/gateway/internal/route"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

// Bucket stores the files of workspaces in an S3 store.
type Bucket = workspaces.InBucket

// BucketConfig configures a Bucket.
type BucketConfig = workspaces.BucketConfig

// NewBucket returns a Bucket. It does not connect.
func NewBucket(cfg BucketConfig) (*Bucket, error) { return workspaces.NewInBucket(cfg) }

// workspaceFiles are the files of workspaces, and their routes.
type workspaceFiles struct {
	*e2aworkspaces.Handler

	files  *workspace.Store
	mounts *mounts.Mounts
}

func newWorkspaces(cfg *Config, ops *operations.Operations, streams *stream.Streams, keeper *attachments.Keeper) workspaceFiles {
	files := cfg.Log.Workspaces()
	links := workspaces.NewLinks(ops.Core, time.Now)
	var store workspaces.Store = workspaces.NewInLog(files, links)
	if cfg.Bucket != nil {
		store = cfg.Bucket
	}
	base := func(c *fiber.Ctx) string { return route.Base(c, cfg.Public.Secure()) }
	return workspaceFiles{e2aworkspaces.New(store, links, streams, base), files, mounts.New(mounts.Config{
		Store: store, Files: lifecycle.Background{Lifecycle: ops.Lifecycle}, View: ops.Core.View, Gateways: keeper, Slog: cfg.Slog,
	})}
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
