package mounts

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

const (
	// Dir is the directory of a workspace in a sandbox.
	Dir = "/workspace"

	// Interval is the time between two synchronizations of a sandbox.
	Interval = 30 * time.Second

	// Metadata is the name of the metadata of a sandbox that has a workspace.
	Metadata = "e2a.workspace"

	mountTimeout = 5 * time.Minute
	flushTimeout = 2 * time.Minute
	parallel     = 4 // sandboxes that are synchronized concurrently
)

// Mark adds a workspace to the metadata of a sandbox.
func Mark(metadata map[string]string, of workspace.Scope) { metadata[Metadata] = of.App + "/" + of.Set }

// Scope returns the workspace of a sandbox; false without one.
func Scope(st *sandbox.State) (workspace.Scope, bool) {
	app, set, ok := strings.Cut(st.Request.Metadata[Metadata], "/")
	of, err := workspace.ParseScope(st.Tenant, app, set)
	return of, ok && err == nil
}

// View has the sandboxes. *catalog.View implements it.
type View interface {
	Sandbox(id sandbox.ID) (sandbox.State, bool)
	Changes() (changed <-chan struct{}, stop func())
	Sandboxes(keep func(*sandbox.State) bool) []sandbox.State
	ChangeSandbox(ctx context.Context, id sandbox.ID, decide func(sandbox.State) ([]sandbox.Body, error)) (sandbox.State, error)
}

// Gateways are the gateways of the cluster. *attachments.Keeper implements it.
type Gateways interface {
	ID() string                             // of this one
	Gone(gateway string, at time.Time) bool // whether one that ran at a time has ended
}

// Config configures Mounts. All fields are required.
type Config struct {
	Store    workspaces.Store
	Files    core.FileOpener // whose requests are no use of a sandbox
	View     View
	Gateways Gateways
	Slog     *slog.Logger
}

// Mounts are the mounted sandboxes of a gateway. Its methods may be called concurrently.
type Mounts struct {
	cfg Config
	mu  sync.Mutex
	all map[sandbox.ID]*mount
}

// New returns Mounts.
func New(cfg Config) *Mounts { return &Mounts{cfg: cfg, all: make(map[sandbox.ID]*mount)} }

// mount is a sandbox with a workspace.
type mount struct {
	id sandbox.ID
	of workspace.Scope

	mu      sync.Mutex                  // held while it is synchronized
	base    map[workspace.Path]version  // as of the last synchronization
	refused map[workspace.Path]struct{} // files that could not be copied, which were logged
	changed map[workspace.Path]struct{} // files that changed in the sandbox and are not stored
	mounted bool                        // a synchronization has succeeded
	warned  bool                        // it was synchronized after the warning of its end
	stored  time.Time                   // when the last synchronization began that succeeded; zero: none has
	due     time.Time
	look    time.Time // when the files of the sandbox are listed next
}

// get returns the mount of a sandbox; nil if the sandbox has no workspace.
func (ms *Mounts) get(st *sandbox.State) *mount {
	of, ok := Scope(st)
	if !ok {
		return nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.all[st.ID]
	if m == nil {
		m = &mount{id: st.ID, of: of, base: make(map[workspace.Path]version), refused: make(map[workspace.Path]struct{}), changed: make(map[workspace.Path]struct{})}
		ms.all[st.ID] = m
	}
	return m
}

// Mount mounts the workspace of a running sandbox, if it has one, unless it is mounted.
func (ms *Mounts) Mount(ctx context.Context, st *sandbox.State) error {
	m := ms.get(st)
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	err := ms.claim(ctx, m)
	if err == nil {
		err = ms.makeDir(ctx, m)
	}
	if err == nil {
		err = ms.sync(ctx, m, true)
	}
	if err != nil && kind.Of(err) != kind.NotFound {
		return &kind.Error{Op: "mount workspace", ID: string(m.id), Kind: kind.Unavailable, Msg: "the workspace cannot be mounted: try again", Err: err}
	}
	return err
}

// Flush stores what has changed in a running sandbox with a workspace. An error is logged: it names what
// was not stored.
func (ms *Mounts) Flush(ctx context.Context, st *sandbox.State) {
	m := ms.get(st)
	if m == nil || !st.IsRunning() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ms.flush(ctx, m, m.mounted)
}

// flush synchronizes a mount that is locked.
func (ms *Mounts) flush(ctx context.Context, m *mount, pull bool) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := ms.sync(ctx, m, pull); err != nil {
		ms.warn("flush workspace failed", m, err)
	}
}
