package connect

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	pb "github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/procs"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	// watchIdle is how long a watch outlives its last stream: within it, a client may
	// resume with X-Process-Id and X-Replay-From.
	watchIdle  = 90 * time.Second
	watchTouch = watchIdle / 3
)

// watchHandler serves watches: those that are streamed, and those that are polled.
type watchHandler struct {
	core     watchCore
	streams  *stream.Streams
	interval time.Duration // of keepalives if the client sends none
}

// watchCore is the part of the gateway's operations that watches use.
type watchCore interface {
	Sandboxes
	Starter
	Records
	Watches
	Find(ctx context.Context, p core.Principal, sbx sandbox.ID, sel procs.Selector) (process.Summary, error)
	Signal(ctx context.Context, p core.Principal, id process.ID, sig int32) error
}

// watchDir serves WatchDir: it starts a watch, or resumes the one that the header
// X-Process-Id names, and streams its record.
func (h *watchHandler) watchDir(c *fiber.Ctx, r *call, raw []byte) error {
	var req pb.WatchDirRequest
	if err := r.format.decode(raw, &req); err != nil {
		return err
	}
	want, err := parseReplayFrom(option(c, "replay_from", "X-Replay-From"))
	if err != nil {
		return err
	}
	ctx, cancel := r.context(c)
	defer cancel()
	id := r.process
	var src stream.Source
	if id != "" {
		src, err = h.resumeWatch(ctx, r, id, &want)
	} else {
		id, src, err = h.startWatch(ctx, r, &file.Watch{
			Path: req.GetPath(), User: r.user, Recursive: req.GetRecursive(),
			Entries: req.GetIncludeEntry(), Network: req.GetAllowNetworkMounts(), Idle: watchIdle,
		})
	}
	if err != nil {
		return err
	}
	enc := &watchEncoder{format: r.format, gzip: accepts(c.Get(headerAccepts)), keepalive: keepalive(c, h.interval), resumed: want.seq > 0, seq: want.seq}
	enc.bare = c.Get(fiber.HeaderUserAgent) == "connect-python"
	head := stream.Head{
		ContentType: r.format.streamType(), Timeout: r.timeout,
		Headers: [][2]string{{headerProcess, string(id)}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
	}
	if enc.gzip {
		head.Headers = append(head.Headers, [2]string{headerEncoding, "gzip"})
	}
	return h.streams.Serve(c, head, h.keepWatchAlive(r.principal, id, src), enc)
}

func (h *watchHandler) startWatch(ctx context.Context, r *call, w *file.Watch) (process.ID, stream.Source, error) {
	ask := file.Request{Op: file.OpStat, Path: w.Path, User: w.User}
	if err := ask.Check(); err != nil {
		return "", nil, err
	}
	if err := r.routed(h.core); err != nil {
		return "", nil, err
	}
	spec := process.Spec{Cmd: file.WatchCmd, Args: w.Args(), User: w.User, Helper: true}
	id, src, err := h.core.Start(ctx, r.principal, r.sbx, spec, procs.StartOptions{IdempotencyKey: r.key})
	if kind.Is(err, kind.NotFound) {
		return "", nil, &unrouted{r.named}
	}
	return id, src, err
}

func (h *watchHandler) resumeWatch(ctx context.Context, r *call, id process.ID, want *replayFrom) (stream.Source, error) {
	if _, err := h.findWatch(ctx, r, id); err != nil {
		return nil, err
	}
	if err := checkPosition(ctx, h.core, r, id, want); err != nil {
		return nil, err
	}
	return h.core.Read(ctx, r.principal, id, want.seq)
}

func (h *watchHandler) findWatch(ctx context.Context, r *call, id process.ID) (process.Summary, error) {
	sum, err := h.core.Find(ctx, r.principal, r.sbx, procs.Selector{ID: id})
	if err == nil && sum.Spec.Cmd != file.WatchCmd {
		err = kind.New(kind.NotFound, "find watch", string(id), "not a watch")
	}
	return sum, err
}

// keepWatchAlive signals the watch that it is in use while src is read.
func (h *watchHandler) keepWatchAlive(principal core.Principal, id process.ID, src stream.Source) stream.Source {
	ctx, cancel := context.WithCancel(context.Background()) // the stream outlives its request
	go func() {
		tick := time.NewTicker(watchTouch)
		defer tick.Stop()
		for {
			h.core.Signal(ctx, principal, id, int32(syscall.SIGCONT)) //nolint:errcheck // the record has the outcome
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return &watchSource{Source: src, cancel: cancel}
}

type watchSource struct {
	stream.Source
	cancel context.CancelFunc
}

func (s *watchSource) Close() {
	s.cancel()
	s.Source.Close()
}

// watcherPrefix begins a watcher's id; the rest is its process's token.
const watcherPrefix = "w"

// createWatcher serves CreateWatcher: a watch whose events are polled.
func (h *watchHandler) createWatcher(ctx context.Context, r *call, req *pb.CreateWatcherRequest) (proto.Message, error) {
	id, src, err := h.startWatch(ctx, r, &file.Watch{
		Path: req.GetPath(), User: r.user, Recursive: req.GetRecursive(),
		Entries: req.GetIncludeEntry(), Network: req.GetAllowNetworkMounts(),
	})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	for {
		batch, err := src.Next(ctx, time.Second)
		if err != nil {
			return nil, err
		}
		for i := range batch {
			switch b := batch[i].Body.(type) {
			case process.Started:
				return &pb.CreateWatcherResponse{WatcherId: watcherPrefix + id.Token()}, nil
			case process.Failed:
				return nil, kind.New(kind.Kind(b.Kind), "watch", string(id), b.Message)
			case process.Accepted, process.Wrote, process.Omitted, process.StdinAcked, process.Resized, process.Signaled,
				process.Truncated, process.Gap, process.Exited, process.Finished, process.Lost:
			}
		}
	}
}

// watcher returns the process of a watcher's id.
func (h *watchHandler) watcher(ctx context.Context, r *call, name string) (process.Summary, error) {
	missing := fail(CodeNotFound, "watcher with id %s not found", name)
	token, ok := strings.CutPrefix(name, watcherPrefix)
	if !ok {
		return process.Summary{}, missing
	}
	id, err := process.ParseID(token + "-" + string(r.sbx))
	if err != nil {
		return process.Summary{}, missing
	}
	sum, err := h.findWatch(ctx, r, id)
	if kind.Is(err, kind.NotFound) || err == nil && !sum.Active() {
		if over := r.routed(h.core); over != nil {
			return sum, over
		}
		return sum, missing
	}
	return sum, err
}
