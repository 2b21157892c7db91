package session

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

const (
	sigInt  = 2
	sigKill = 9
	// writeHold is how long a write that waits for its process holds back later answers, and a
	// terminate that is behind it.
	writeHold = time.Second
	// startTimeout limits a start.
	startTimeout = 30 * time.Second
)

// parse decodes a call and returns a request that runs it.
func (c *conn) parse(method string, m *jsonrpc.Message) (*request, error) {
	switch method {
	case protocol.ProcessStart:
		p, err := protocol.ParseStart(m.Params)
		return c.onProcess(p.ProcessID, starts, func(ctx context.Context, r *request) (any, error) { return c.startProcess(ctx, r, &p) }, err)
	case protocol.ProcessRead:
		p, err := protocol.ParseRead(m.Params)
		return c.onProcess(p.ProcessID, observes, func(ctx context.Context, r *request) (any, error) { return c.read(ctx, r, &p) }, err)
	case protocol.ProcessWrite:
		p, err := protocol.ParseWrite(m.Params)
		return c.onProcess(p.ProcessID, writes, func(ctx context.Context, r *request) (any, error) { return c.write(ctx, r, &p) }, err)
	case protocol.ProcessSignal:
		p, err := protocol.ParseSignal(m.Params)
		return c.onProcess(p.ProcessID, observes, func(ctx context.Context, r *request) (any, error) { return c.interrupt(ctx, r, p.ProcessID) }, err)
	case protocol.ProcessTerminate:
		p, err := protocol.ParseTerminate(m.Params)
		return c.onProcess(p.ProcessID, observes, func(ctx context.Context, r *request) (any, error) { return c.terminate(ctx, r, p.ProcessID) }, err)
	case protocol.EnvironmentInfo:
		return plain(func(ctx context.Context) (any, error) { return c.describe(ctx) }), nil
	case protocol.EnvironmentStatus:
		return plain(func(context.Context) (any, error) { return protocol.Status{Status: "ready"}, nil }), nil
	case protocol.HTTPRequest:
		return c.parseHTTP(m)
	}
	return c.parseFile(method, m)
}

// plain returns a request without an order.
func plain(run func(ctx context.Context) (any, error)) *request {
	return &request{run: func(ctx context.Context, _ *request) (any, error) { return run(ctx) }}
}

// onProcess returns a request about a process. It enters the process's lane, so that it must
// be run or left in the order of the messages.
func (c *conn) onProcess(name string, e effect, run func(context.Context, *request) (any, error), err error) (*request, error) {
	if err != nil {
		return nil, err
	}
	if c.state != protocol.StateReady {
		return &request{}, nil // it will be refused
	}
	return &request{turn: c.lanes.enter(name, e), run: run}, nil
}

// startProcess serves process/start.
func (c *conn) startProcess(ctx context.Context, r *request, p *protocol.StartParams) (any, error) {
	if err := await(ctx, r.turn.prior); err != nil {
		return nil, err
	}
	cmd := Command{Argv: p.Argv, Arg0: p.Arg0, Cwd: p.Cwd.Name, TTY: p.TTY, Stdin: p.PipeStdin && !p.TTY}
	var inherited map[string]string
	if p.EnvPolicy != nil {
		var err error
		if _, inherited, err = c.services.Environment.Describe(ctx); err != nil {
			return nil, err
		}
	}
	cmd.Env = protocol.Environment(p.EnvPolicy, inherited, p.Env)
	var err error
	if cmd.Confinement, err = p.Sandbox.Resolve(cmd.Env["TMPDIR"]); err != nil {
		return nil, err
	}
	// A start that was sent is awaited even if the client has left: the session stays attached
	// until then, so that the client, once it is back, finds the process or never will.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	proc, src, err := c.services.Processes.Start(detached, p.ProcessID, cmd)
	if err != nil {
		return nil, startError(p.ProcessID, err)
	}
	rest, err := awaitStart(detached, src)
	if err != nil {
		src.Close()
		return nil, err
	}
	c.feeds.learn(proc)
	r.after = func() { c.follow(ctx, proc, src, rest, translator{next: 1, tty: proc.TTY}) }
	return protocol.Started{ProcessID: p.ProcessID, SandboxType: sandboxType(cmd.Confinement)}, nil
}

// sandboxType returns the name under which a client knows the isolation of a process.
func sandboxType(c *process.Confinement) string {
	if c == nil {
		return "none"
	}
	return "linuxSeccomp"
}

func startError(name string, err error) error {
	switch {
	case kind.Is(err, kind.Conflict):
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "process %s already exists", name)
	case kind.Is(err, kind.Unimplemented):
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%s", kind.Message(err))
	}
	return err
}

// awaitStart reads until the process runs, and returns the events that were read behind that.
func awaitStart(ctx context.Context, src Source) ([]process.Event, error) {
	for {
		batch, err := src.Next(ctx, 0)
		for i := range batch {
			switch b := batch[i].Body.(type) {
			case process.Started:
				return batch[i+1:], nil
			case process.Failed:
				code := jsonrpc.CodeInternal
				if kind.Kind(b.Kind) == kind.Unimplemented { // a confinement that cannot be enforced
					code = jsonrpc.CodeInvalidParams
				}
				return nil, &jsonrpc.Error{Code: code, Message: b.Message}
			case process.Finished:
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "the process did not start: " + failure(&b.Exit)}
			default:
			}
		}
		if errors.Is(err, io.EOF) {
			err = kind.New(kind.Unavailable, "start", "", "the process did not start")
		}
		if err != nil {
			return nil, err
		}
	}
}

// find returns a process of the session.
func (c *conn) find(ctx context.Context, name string) (Process, error) {
	if p, ok := c.feeds.known(name); ok {
		return p, nil
	}
	return c.services.Processes.Find(ctx, name)
}

func unknownProcess(name string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "unknown process id %s", name)
}

// write serves process/write. A write that cannot be taken is an error for clients without
// writeId and a status for those with one.
func (c *conn) write(ctx context.Context, r *request, p *protocol.WriteParams) (any, error) {
	if err := await(ctx, r.turn.prior); err != nil {
		return nil, err
	}
	rejected := func(status string, err error) (any, error) {
		if p.WriteID == nil {
			return nil, err
		}
		return protocol.Written{Status: status}, nil
	}
	accepted := protocol.Written{Status: protocol.WriteAccepted, Accepted: true}
	stdinClosed := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "stdin is closed for process %s", p.ProcessID)
	proc, err := c.find(ctx, p.ProcessID)
	switch {
	case kind.Is(err, kind.NotFound):
		return rejected(protocol.WriteUnknown, unknownProcess(p.ProcessID))
	case err != nil:
		return nil, err
	case !proc.TTY && !proc.Stdin:
		return rejected(protocol.WriteClosed, stdinClosed)
	case len(p.Chunk) == 0:
		return accepted, nil
	}
	key := ""
	if p.WriteID != nil {
		key = *p.WriteID
	}
	timer := time.AfterFunc(writeHold, r.turn.pass)
	defer timer.Stop()
	err = c.services.Controls.Write(ctx, proc.ID, key, p.Chunk)
	switch {
	case err == nil, kind.Is(err, kind.NotFound): // ended, which the client sees in the record
		return accepted, nil
	case kind.Is(err, kind.Precondition):
		return rejected(protocol.WriteClosed, stdinClosed)
	}
	return nil, err
}

// interrupt serves process/signal. It succeeds for any process, as in released servers.
func (c *conn) interrupt(ctx context.Context, r *request, name string) (any, error) {
	if err := await(ctx, r.turn.started); err != nil {
		return nil, err
	}
	proc, err := c.find(ctx, name)
	if err == nil {
		err = c.services.Controls.Signal(ctx, proc.ID, sigInt)
	}
	if err != nil && !kind.Is(err, kind.NotFound) {
		return nil, err
	}
	return protocol.Empty{}, nil
}

// terminate serves process/terminate: it kills the process group. What was written before is
// given a moment to arrive.
func (c *conn) terminate(ctx context.Context, r *request, name string) (any, error) {
	if err := await(ctx, r.turn.started); err != nil {
		return nil, err
	}
	if err := awaitWithin(ctx, r.turn.prior, writeHold); ctx.Err() != nil {
		return nil, err
	}
	proc, err := c.find(ctx, name)
	if kind.Is(err, kind.NotFound) {
		return protocol.Terminated{}, nil
	}
	if err != nil {
		return nil, err
	}
	tail, err := c.services.Records.Tail(ctx, proc.ID)
	if err != nil {
		return nil, err
	}
	if tail.Finished != nil {
		return protocol.Terminated{}, nil
	}
	err = c.services.Controls.Signal(ctx, proc.ID, sigKill)
	if err != nil && !kind.Is(err, kind.NotFound) {
		return nil, err
	}
	return protocol.Terminated{Running: err == nil && tail.Exited == nil}, nil
}
