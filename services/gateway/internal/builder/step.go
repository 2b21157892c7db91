package builder

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/snapshots"
)

const (
	// outputGrace is how long, after a command has ended, the output of its remaining processes is
	// read.
	outputGrace = 2 * time.Second
	outputIdle  = 500 * time.Millisecond // without output
)

// sandbox returns the sandbox in which step n runs. If no host has free capacity, it waits.
func (r *run) sandbox(ctx context.Context, from origin, f settings, n int) (sandbox.ID, error) {
	req := r.requested(from, f)
	what := "sandbox."
	if _, dropped := r.layerID(n); dropped > 0 { // the sandbox of the dropped layer has ended
		what += strconv.Itoa(dropped) + "."
	}
	for try := 0; ; try++ {
		id := sandbox.KeyedID(r.key(what+strconv.Itoa(try), n)) // a refused id stays refused
		if st, ok := r.failedSandbox(id); ok && st.Request.From != from.snap.ID {
			continue // it was for a layer that the build no longer uses
		}
		_, err := r.cfg.Ops.Provisioner.EnsureSandbox(ctx, r.principal, id, req)
		if _, ok := r.failedSandbox(id); ok && kind.Is(err, kind.Unavailable) {
			return id, &sandboxError{err, from.snap}
		}
		if !kind.Is(err, kind.Exhausted) || try == maxTries {
			return id, err
		}
		if !waiting.Sleep(ctx, waiting.Delay(try, time.Second, maxBackoff)) {
			return id, ctx.Err()
		}
	}
}

// sandboxError is the error of a sandbox that could not be created on a layer.
type sandboxError struct {
	err error
	on  sandbox.Snapshot
}

func (u *sandboxError) Error() string { return u.err.Error() }
func (u *sandboxError) Unwrap() error { return u.err }

// failedSandbox returns the sandbox and true if it ended before it ran.
func (r *run) failedSandbox(id sandbox.ID) (sandbox.State, bool) {
	st, err := r.cfg.Ops.Lifecycle.Sandbox(r.principal, id)
	return st, err == nil && st.Over() && st.Started.IsZero()
}

// Limits of the wait for capacity, about five minutes in total.
const (
	maxTries   = 32
	maxBackoff = 10 * time.Second
)

func (r *run) requested(from origin, f settings) sandbox.Requested {
	s := r.current()
	req := sandbox.Requested{
		Template: from.template, Built: s.Request.Template, Build: string(s.ID), Alias: s.Request.Name,
		Env: f.env, User: f.user, Workdir: f.workdir, Lifetime: max(time.Nanosecond, time.Until(s.Created.Add(buildTimeout+endTimeout))),
		Secure: true, AllowInternet: true, OnTimeout: sandbox.OnTimeoutKill,
	}
	if from.snap.ID != "" {
		req = snapshots.From(&from.snap, req)
	}
	if s.Request.CPUMilli > 0 {
		req.CPUMilli = s.Request.CPUMilli
	}
	if s.Request.MemoryMiB > 0 {
		req.MemoryMiB = s.Request.MemoryMiB
	}
	return req
}

// destroy ends a sandbox that is no longer needed, to free its capacity for the next. If the
// build stops, the sandbox is left to the successor.
func (r *run) destroy(ctx context.Context, id sandbox.ID) {
	if ctx.Err() != nil {
		return
	}
	if err := r.cfg.Ops.Lifecycle.DestroySandbox(ctx, r.principal, id); err != nil && !kind.Is(err, kind.NotFound) {
		r.cfg.Slog.Warn("end sandbox of build failed", "sandbox", id, "err", err) // its deadline ends it
	}
}

// saveLayer makes a layer of a step's sandbox, and records it as the build's newest. It makes
// another if the layer was dropped before it was recorded.
func (r *run) saveLayer(ctx context.Context, sbx sandbox.ID, from origin, l *layer) (sandbox.Snapshot, error) {
	for {
		id, _ := r.layerID(l.step)
		if err := r.cfg.Ops.Snapshots.EnsureLayer(ctx, r.principal, sbx, events.TakeSnapshot{ID: id, Internal: true, Layer: l.sum}); err != nil {
			return sandbox.Snapshot{}, err
		}
		mark := r.mark()
		mark.Layers = layersToKeep(from, id)
		if err := r.log(ctx, mark); err != nil {
			return sandbox.Snapshot{}, err
		}
		if snap, err := r.cfg.Ops.Snapshots.ClaimLayer(ctx, id); !kind.Is(err, kind.NotFound) {
			return snap, err
		}
	}
}

// makeDir creates a directory that a step needs, or checks that a user exists.
func (r *run) makeDir(ctx context.Context, sbx sandbox.ID, dir directory) error {
	ask := file.Request{Op: file.OpMakeDir, Path: dir.path, User: dir.user}
	if dir.path == "" {
		ask.Op, ask.Path = file.OpStat, "/"
	}
	f, err := r.cfg.Ops.Lifecycle.OpenFiles(ctx, r.principal, sbx, &ask)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Only(); !kind.Is(err, kind.Conflict) {
		return err
	}
	return nil // it exists
}

// command is execute for a step of the template: its error names the command.
func (r *run) command(ctx context.Context, sbx sandbox.ID, l *layer) error {
	return ofCommand(l.do.Args[0], r.execute(ctx, sbx, l))
}

// execute runs the command of a layer, or follows it if it is already running.
func (r *run) execute(ctx context.Context, sbx sandbox.ID, l *layer) error {
	spec := procs.Shell(l.do.Args[0])
	spec.User, spec.Cwd = l.user, l.workdir
	if len(l.do.Args) > 1 && l.do.Args[1] != "" {
		spec.User = l.do.Args[1]
	}
	a, err := r.cfg.Ops.Procs.Start(ctx, r.principal, sbx, spec, procs.StartOptions{IdempotencyKey: "millrace.build"})
	if err != nil {
		return err
	}
	reader := a.Reader.Reader
	o := &output{prefix: r.prefix(l), mark: r.mark()}
	if int(o.mark.Step) != l.step { // the previous owner was further on, but its layer is gone
		o.mark = build.Mark{Step: uint32(l.step), Layers: o.mark.Layers}
	}
	if o.mark.After > 0 {
		reader.Close()
		if reader, err = r.cfg.Ops.Procs.Read(ctx, r.principal, a.ID, o.mark.After); err != nil {
			return err
		}
	}
	defer reader.Close()
	return r.follow(ctx, a.ID, reader, o)
}

// ofCommand adds the command to err in E2B's format, which clients search for.
func ofCommand(command string, err error) error {
	var e *kind.Error
	if !errors.As(err, &e) || e.Msg == "" {
		return err
	}
	named := *e
	named.Msg = "failed to run command '" + strings.ToValidUTF8(command[:min(len(command), maxTitle)], "") + "': " + e.Msg
	return &named
}

// follow logs a command's output until the command ends. It does not wait for processes that
// the command left running.
func (r *run) follow(ctx context.Context, id process.ID, reader *events.Reader, o *output) error {
	var exit *process.Exit
	var until time.Time
	for {
		batch, err := reader.Next(ctx, outputIdle)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		x, err := r.consume(ctx, o, batch)
		if err != nil {
			return err
		}
		if ended && exit == nil && x == nil { // an earlier run read its end
			sum, err := r.cfg.Ops.Procs.Process(ctx, r.principal, id)
			if err != nil {
				return err
			}
			if x = sum.Exit; x == nil {
				return kind.New(kind.Internal, "build", string(id), "the command's record has no end")
			}
		}
		if x != nil && exit == nil {
			exit, until = x, time.Now().Add(outputGrace)
		}
		over := exit != nil && (ended || len(batch) == 0 || time.Now().After(until))
		if over {
			o.flushPartial()
		}
		if len(o.lines) > 0 {
			if err := r.flush(ctx, o); err != nil {
				return err
			}
		}
		if over {
			return exitError(exit, o.tail)
		}
	}
}

// consume processes a process's events: output lines, the exit, or the reason why it never ran.
// It flushes when many lines have come together.
func (r *run) consume(ctx context.Context, o *output, batch []process.Event) (exit *process.Exit, err error) {
	for i := range batch {
		e := &batch[i]
		if o.size >= flushBytes {
			if err := r.flush(ctx, o); err != nil {
				return nil, err
			}
		}
		o.mark.After = e.Seq
		switch b := e.Body.(type) {
		case process.Wrote:
			o.wrote(e, &b)
		case process.Failed:
			return nil, kind.New(kind.Kind(b.Kind), "build", "", b.Message)
		case process.Exited:
			exit = &b.Exit
		case process.Finished:
			exit = &b.Exit
		case process.Lost:
			return nil, kind.New(kind.Unavailable, "build", "", "the build's sandbox was lost:  "+b.Reason)
		case process.Accepted, process.Gap, process.Resized, process.Signaled, process.Started, process.StdinAcked, process.Truncated: // not part of its output
		}
	}
	return exit, nil
}

// maxErrorOutput is the maximum number of bytes of a command's last output in an error.
const maxErrorOutput = 4096

// exitError returns the error of a command's exit; tail is its last output.
func exitError(x *process.Exit, tail []string) error {
	if x.Code != nil && *x.Code == 0 {
		return nil
	}
	text := procs.Ending(x)
	if len(tail) > 0 {
		words := strings.Join(tail, "\n")
		text += "\n" + strings.ToValidUTF8(words[max(0, len(words)-maxErrorOutput):], "")
	}
	k := kind.Precondition
	if !x.Seen() {
		k = kind.Unavailable
	}
	return kind.New(k, "build", "", text)
}

// copy unpacks a step's files in its sandbox.
func (r *run) copy(ctx context.Context, sbx sandbox.ID, l *layer) error {
	raw, err := r.cfg.Ops.Builds.Context(ctx, r.principal.Tenant, l.do.Files)
	if err != nil {
		return err
	}
	defer raw.Close() //nolint:errcheck // it was only read
	from, err := openTar(raw)
	if err != nil {
		return err
	}
	first, err := from.Next()
	if err != nil {
		return tarError(err)
	}
	args := append(append([]string{}, l.do.Args...), "", "")
	c := copySpec{source: path.Clean(args[0]), dest: args[1]}
	if args[3] != "" {
		if c.mode, err = strconv.ParseInt(args[3], 8, 64); err != nil || c.mode < 0 || c.mode > 0o7777 {
			return invalid("mode %.20q is not an octal number", args[3])
		}
	}
	user, _, _ := strings.Cut(args[2], ":")
	if user == "" {
		user = l.user
	}
	if err := r.setDestination(ctx, sbx, &c, l, user, first); err != nil {
		return err
	}
	f, err := r.cfg.Ops.Lifecycle.OpenFiles(ctx, r.principal, sbx, &file.Request{Op: file.OpUnpack, Path: c.dest, User: user})
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.rewrite(f, first, from); err != nil {
		return r.unpackError(f, err)
	}
	if err := f.CloseWrite(); err != nil {
		return err
	}
	return f.Done()
}

// unpackError prefers the sandbox's error to that of writing to it.
func (r *run) unpackError(f *core.Files, err error) error {
	if kind.Is(err, kind.Invalid) {
		return err
	}
	if failed := f.Done(); failed != nil {
		return failed
	}
	return err
}

// setDestination decides the destination of a copy: a file that is copied to a path that is not a
// directory gets that name.
func (r *run) setDestination(ctx context.Context, sbx sandbox.ID, c *copySpec, l *layer, user string, first *tar.Header) error {
	isDir := strings.HasSuffix(c.dest, "/") || path.Base(c.dest) == "." || path.Base(c.dest) == ".."
	if !path.IsAbs(c.dest) && !strings.HasPrefix(c.dest, "~") && l.workdir != "" {
		c.dest = path.Join(l.workdir, c.dest)
	}
	if first.Typeflag == tar.TypeDir || path.Clean(first.Name) != c.source {
		return nil
	}
	c.single = path.Base(c.source)
	if isDir {
		return nil
	}
	f, err := r.cfg.Ops.Lifecycle.OpenFiles(ctx, r.principal, sbx, &file.Request{Op: file.OpStat, Path: c.dest, User: user})
	if err != nil {
		return err
	}
	defer f.Close()
	var e pb.EntryInfo
	raw, err := f.Only()
	if err == nil {
		err = proto.Unmarshal(raw, &e)
	}
	switch {
	case err != nil && !kind.Is(err, kind.NotFound):
		return err
	case e.GetType() != pb.FileType_FILE_TYPE_DIRECTORY:
		c.dest, c.single = path.Dir(c.dest), path.Base(c.dest)
	}
	return nil
}
