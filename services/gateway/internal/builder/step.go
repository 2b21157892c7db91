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

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

const (
	// outputGrace is how long, after a command has ended, the output of its remaining processes is
	// read.
	outputGrace = 2 * time.Second
	outputIdle  = 500 * time.Millisecond // without output
)

// Processes runs processes in sandboxes.
type Processes interface {
	Start(ctx context.Context, p core.Principal, sbx sandbox.ID, spec process.Spec, opt procs.StartOptions) (procs.Attached, error)
	Read(ctx context.Context, p core.Principal, id process.ID, after process.Seq) (*record.Reader, error)
	Process(ctx context.Context, p core.Principal, id process.ID) (process.Summary, error)
	RunStartCommand(ctx context.Context, p core.Principal, id sandbox.ID, command string) error
	AwaitReady(ctx context.Context, p core.Principal, id sandbox.ID, command string) error
}

// Files are the files of sandboxes.
type Files interface {
	OpenFiles(ctx context.Context, p core.Principal, id sandbox.ID, req *file.Request) (*core.Files, error)
}

// Contexts stores the files that builds copy.
type Contexts interface {
	Context(ctx context.Context, tenant, sum string) (io.ReadCloser, error)
}

// executor executes the steps of a build in their sandboxes.
type executor struct {
	record    *buildRecord
	principal core.Principal
	steps     int // number of steps of the build
	processes Processes
	files     Files
	contexts  Contexts
}

// makeDir creates a directory that a step needs, or checks that a user exists.
func (ex *executor) makeDir(ctx context.Context, sbx sandbox.ID, dir directory) error {
	ask := file.Request{Op: file.OpMakeDir, Path: dir.path, User: dir.user}
	if dir.path == "" {
		ask.Op, ask.Path = file.OpStat, "/"
	}
	f, err := ex.files.OpenFiles(ctx, ex.principal, sbx, &ask)
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
func (ex *executor) command(ctx context.Context, sbx sandbox.ID, l *layer) error {
	return ofCommand(l.do.Args[0], ex.execute(ctx, sbx, l))
}

// execute runs the command of a layer, or follows it if it is already running.
func (ex *executor) execute(ctx context.Context, sbx sandbox.ID, l *layer) error {
	spec := procs.Shell(l.do.Args[0])
	spec.User, spec.Cwd = l.user, l.workdir
	if len(l.do.Args) > 1 && l.do.Args[1] != "" {
		spec.User = l.do.Args[1]
	}
	a, err := ex.processes.Start(ctx, ex.principal, sbx, spec, procs.StartOptions{IdempotencyKey: "millrace.build"})
	if err != nil {
		return err
	}
	reader := a.Reader.Reader
	o := &output{prefix: l.prefix(ex.steps), mark: ex.record.mark()}
	if int(o.mark.Step) != l.step { // the previous owner was further on, but its layer is gone
		o.mark = build.Mark{Step: uint32(l.step), Layers: o.mark.Layers}
	}
	if o.mark.After > 0 {
		reader.Close()
		if reader, err = ex.processes.Read(ctx, ex.principal, a.ID, o.mark.After); err != nil {
			return err
		}
	}
	defer reader.Close()
	return ex.follow(ctx, a.ID, reader, o)
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
func (ex *executor) follow(ctx context.Context, id process.ID, reader *record.Reader, o *output) error {
	var exit *process.Exit
	var until time.Time
	for {
		batch, err := reader.Next(ctx, outputIdle)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		x, err := ex.consume(ctx, o, batch)
		if err != nil {
			return err
		}
		if ended && exit == nil && x == nil { // an earlier run read its end
			sum, err := ex.processes.Process(ctx, ex.principal, id)
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
			if err := ex.record.flush(ctx, o); err != nil {
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
func (ex *executor) consume(ctx context.Context, o *output, batch []process.Event) (exit *process.Exit, err error) {
	for i := range batch {
		e := &batch[i]
		if o.size >= flushBytes {
			if err := ex.record.flush(ctx, o); err != nil {
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
		case process.Accepted, process.Gap, process.Omitted, process.Resized, process.Signaled, process.Started, process.StdinAcked, process.Truncated: // not part of its output
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
func (ex *executor) copy(ctx context.Context, sbx sandbox.ID, l *layer) error {
	raw, err := ex.contexts.Context(ctx, ex.principal.Tenant, l.do.Files)
	if err != nil {
		return err
	}
	defer raw.Close()
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
	if err := ex.setDestination(ctx, sbx, &c, l, user, first); err != nil {
		return err
	}
	f, err := ex.files.OpenFiles(ctx, ex.principal, sbx, &file.Request{Op: file.OpUnpack, Path: c.dest, User: user})
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.rewrite(f, first, from); err != nil {
		return unpackError(f, err)
	}
	if err := f.CloseWrite(); err != nil {
		return err
	}
	return f.Done()
}

// unpackError prefers the sandbox's error to that of writing to it.
func unpackError(f *core.Files, err error) error {
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
func (ex *executor) setDestination(ctx context.Context, sbx sandbox.ID, c *copySpec, l *layer, user string, first *tar.Header) error {
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
	f, err := ex.files.OpenFiles(ctx, ex.principal, sbx, &file.Request{Op: file.OpStat, Path: c.dest, User: user})
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

// start runs the template's start command, and waits until it is ready.
func (ex *executor) start(ctx context.Context, sbx sandbox.ID, f *settings) error {
	if f.start != "" {
		if err := ex.processes.RunStartCommand(ctx, ex.principal, sbx, f.start); err != nil {
			return ofCommand(f.start, err)
		}
	}
	if f.ready == "" {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := ex.processes.AwaitReady(waiting, ex.principal, sbx, f.ready)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return kind.Newf(kind.Deadline, "build", "", "the template's command was not ready within %s", readyWithin)
	}
	if kind.Is(err, kind.Precondition) {
		return ofCommand(f.start, err)
	}
	return err
}

// readyWithin is the maximum time until the template's start command is ready.
const readyWithin = 5 * time.Minute
