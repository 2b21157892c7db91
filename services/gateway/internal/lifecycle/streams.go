package lifecycle

import (
	"context"
	"strconv"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// Targets of streams that are not for a port.
const (
	targetFiles  = "files"  // file requests
	targetEgress = "egress" // the sandbox's egress proxy
)

// OpenFiles sends a request about files to a running sandbox. The request is aborted when
// ctx ends. Errors: those of file.Request.Check, NotFound unless the sandbox runs,
// Conflict if it is paused, Unavailable if it cannot be reached. Errors of the sandbox
// come from the methods of Files.
func (l *Lifecycle) OpenFiles(ctx context.Context, p core.Principal, id sandbox.ID, req *file.Request) (*core.Files, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	s, err := l.openRunning(ctx, p, id, targetFiles)
	if err != nil {
		return nil, err
	}
	f, err := core.OpenFilesOver(ctx, s, req)
	if err != nil {
		return nil, err
	}
	if release, held := l.Hold(id); held {
		f.OnClose(release)
	}
	return f, nil
}

// Background opens requests about files that are no use of a sandbox: it may end for being idle.
type Background struct{ *Lifecycle }

// OpenFiles is like [Lifecycle.OpenFiles], without a hold. It does not resume a paused sandbox, and accepts one
// whose end waits for its workspace.
func (b Background) OpenFiles(ctx context.Context, p core.Principal, id sandbox.ID, req *file.Request) (*core.Files, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	st, err := b.FindSandbox(ctx, p, id)
	if err == nil && !st.IsRunning() && !st.AwaitsUnmount() {
		err = core.NoSandbox(id)
	}
	if err == nil {
		err = b.core.RequireHost(&st)
	}
	if err != nil {
		return nil, err
	}
	s, err := b.openStream(ctx, &st, targetFiles)
	if err != nil {
		return nil, err
	}
	return core.OpenFilesOver(ctx, s, req)
}

// OpenEgress opens a stream to the egress proxy of a running sandbox, which speaks HTTP. It
// connects to what the sandbox may connect to. Errors are those of OpenFiles.
func (l *Lifecycle) OpenEgress(ctx context.Context, p core.Principal, id sandbox.ID) (*mux.Stream, error) {
	return l.openRunning(ctx, p, id, targetEgress)
}

// openRunning opens a stream to a target in a sandbox of the principal's that runs.
func (l *Lifecycle) openRunning(ctx context.Context, p core.Principal, id sandbox.ID, target string) (*mux.Stream, error) {
	st, err := l.RequireRunning(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if err := l.core.RequireHost(&st); err != nil {
		return nil, err
	}
	return l.openStream(ctx, &st, target)
}

// DialPort opens a stream to a port of a running sandbox. It does not authorize: the caller
// must. It returns NotFound unless the sandbox runs, Precondition if nothing listens on the
// port, and Unavailable if the sandbox cannot be reached.
func (l *Lifecycle) DialPort(ctx context.Context, id sandbox.ID, port int) (*mux.Stream, error) {
	ok, err := l.Wake(ctx, id)
	if err != nil {
		return nil, err
	}
	st, found := l.core.View.Sandbox(id)
	if !ok || !found {
		return nil, core.NoSandbox(id)
	}
	if err := l.core.RequireHost(&st); err != nil {
		return nil, err
	}
	return l.openStream(ctx, &st, strconv.Itoa(port))
}

// openStream opens a stream to a target in a running sandbox.
func (l *Lifecycle) openStream(ctx context.Context, st *sandbox.State, target string) (*mux.Stream, error) {
	host, _ := l.core.View.Host(st.Host)
	ctx, cancel := context.WithTimeout(ctx, l.core.CallTimeout)
	defer cancel()
	s, err := l.core.Tunnels.Open(ctx, st.Host, host.Epoch, string(st.ID)+":"+target)
	if kind.Is(err, kind.Deadline) {
		return nil, &kind.Error{Op: "open stream", ID: string(st.ID), Kind: kind.Unavailable, Msg: "the sandbox's host does not answer", Err: err}
	}
	return s, err
}
