package connect

import (
	"context"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// Sandboxes looks up sandboxes.
type Sandboxes interface {
	Sandbox(p core.Principal, id sandbox.ID) (sandbox.State, error)
}

// Starter starts processes in sandboxes.
type Starter interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (process.ID, stream.Source, error)
}

// Files reads and writes the files of sandboxes.
type Files interface {
	OpenFiles(ctx context.Context, p core.Principal, sbx sandbox.ID, req *file.Request) (*core.Files, error)
}

// Catalog finds processes.
type Catalog interface {
	Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error)
	ActiveProcesses(ctx context.Context, p core.Principal, sbx sandbox.ID, keep func(*process.Summary) bool) ([]process.Summary, error)
	Env(s *process.Summary) (map[string]string, error)
}

// Records reads the records of processes.
type Records interface {
	Tail(ctx context.Context, p core.Principal, id process.ID) (record.Tail, error)
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (stream.Source, error)
}

// Watches stores how far the events of a watch were delivered.
type Watches interface {
	WatchCursor(ctx context.Context, id process.ID) (catalog.WatchCursor, error)
	PutWatchCursor(ctx context.Context, id process.ID, at catalog.WatchCursor) (uint64, error)
}

// Controls act on running processes.
type Controls interface {
	SendInput(ctx context.Context, p core.Principal, id process.ID, data []byte, eof bool) error
	SendInputOnce(ctx context.Context, p core.Principal, id process.ID, key string, data []byte, eof bool) error
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
	Resize(ctx context.Context, p core.Principal, id process.ID, size process.Size) error
}

// Core is the part of the gateway's operations that the surface uses, implemented by
// record.Gateway.
type Core interface {
	Sandboxes
	Starter
	Files
	Catalog
	Records
	Watches
	Controls
}
