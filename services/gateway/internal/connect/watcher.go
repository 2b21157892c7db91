package connect

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// How far a watcher's events were delivered is stored in the log (catalog.WatchCursor), so
// that any gateway can serve the next call. It is stored as undelivered before a response
// is sent, and again once the outcome of the response is known: events that are not known
// to have reached the client are sent again. The client's TCP acknowledgement counts as
// delivery; a response lost behind it goes unnoticed. A client that needs certainty sends
// its position (X-Replay-From), or retries with the same Idempotency-Key and gets the same
// response.

const (
	// settle is how long GetWatcherEvents waits for events that have just happened.
	settle = 30 * time.Millisecond
	// maxFetched and maxFetchedBytes are the approximate limits of one GetWatcherEvents
	// response, in events and in bytes: names may be long.
	maxFetched      = 100_000
	maxFetchedBytes = 16 << 20
	// removedPoll is the interval of checks whether a removed watcher has ended.
	removedPoll = 2 * time.Millisecond
	// settleTimeout bounds storing the outcome of a response, and waiting for a removal.
	settleTimeout = 5 * time.Second
)

// getWatcherEvents serves GetWatcherEvents: the events since the last acknowledged call, or
// since the seq in X-Replay-From. The response's X-Replay-From is the position for the next
// call. Nothing is removed from the record.
func (h *watchHandler) getWatcherEvents(ctx context.Context, r *call, req *pb.GetWatcherEventsRequest) (proto.Message, error) {
	sum, err := h.watcher(ctx, r, req.GetWatcherId())
	if err != nil {
		return nil, err
	}
	for {
		at, err := h.core.WatchCursor(ctx, sum.ID)
		if err != nil {
			return nil, err
		}
		after, until, err := r.span(&at)
		if err != nil {
			return nil, err
		}
		res, end, err := h.fetch(ctx, r, sum.ID, after, until)
		if err != nil {
			return nil, err
		}
		r.next = end + 1
		if len(res.GetEvents()) == 0 {
			return res, nil
		}
		at.From, at.To, at.Given, at.Key = after, end, false, r.key
		at.Rev, err = h.core.PutWatchCursor(ctx, sum.ID, at)
		switch {
		case kind.Is(err, kind.Conflict): // another call fetched them meanwhile
			continue
		case err != nil:
			return nil, err
		}
		r.onSent = func(whole bool) { at.Rev = h.settle(sum.ID, at, whole) }
		return res, nil
	}
}

// span returns which part of the record a call receives: the events after after, and, if
// until is not 0, up to until.
func (r *call) span(at *catalog.WatchCursor) (after, until process.Seq, err error) {
	switch {
	case r.replay != "":
		want, err := parseReplayFrom(r.replay)
		return want.seq, 0, err
	case r.key != "" && r.key == at.Key:
		return at.From, at.To, nil
	case at.Given:
		return at.To, 0, nil
	}
	return at.From, 0, nil
}

// settle stores the outcome of a response and returns the new revision. If that fails, the
// response counts as lost, unless another call has already continued from it.
func (h *watchHandler) settle(id process.ID, at catalog.WatchCursor, whole bool) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout) // the request is over
	defer cancel()
	if at.Given = true; !whole {
		at.To = at.From
	}
	rev, _ := h.core.PutWatchCursor(ctx, id, at)
	return max(rev, at.Rev)
}

// fetch reads the events of a watch's record after after, up to until if that is not 0,
// and returns the seq that it reached.
func (h *watchHandler) fetch(ctx context.Context, r *call, id process.ID, after, until process.Seq) (*pb.GetWatcherEventsResponse, process.Seq, error) {
	src, err := h.core.Read(ctx, r.principal, id, after)
	if err != nil {
		return nil, 0, err
	}
	defer src.Close()
	res := &pb.GetWatcherEventsResponse{}
	size := 0
	for end := after; ; end = src.After() {
		if until == 0 && (len(res.Events) >= maxFetched || size >= maxFetchedBytes) { // the same response was within the limits before
			return res, end, nil
		}
		batch, err := src.Next(ctx, settle)
		if errors.Is(err, io.EOF) || err == nil && len(batch) == 0 {
			return res, max(end, src.After()), nil
		}
		if err != nil {
			return nil, 0, err
		}
		for i := range batch {
			if until != 0 && batch[i].Seq > until {
				return res, until, nil
			}
			if w, ok := batch[i].Body.(process.Wrote); ok {
				size += len(w.Data)
				if res.Events, err = appendFileEvents(res.Events, w.Data); err != nil {
					return nil, 0, err
				}
			}
		}
	}
}

// removeWatcher serves RemoveWatcher. It responds once the watcher has ended, or after
// settleTimeout.
func (h *watchHandler) removeWatcher(ctx context.Context, r *call, req *pb.RemoveWatcherRequest) (proto.Message, error) {
	sum, err := h.watcher(ctx, r, req.GetWatcherId())
	if err == nil {
		err = h.core.Signal(ctx, r.principal, sum.ID, int32(syscall.SIGKILL))
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(removedPoll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if sum, err := h.findWatch(ctx, r, sum.ID); err != nil || !sum.Active() {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return &pb.RemoveWatcherResponse{}, nil
}

// appendFileEvents decodes the events in a watch's output, which are always whole.
func appendFileEvents(dst []*pb.FilesystemEvent, b []byte) ([]*pb.FilesystemEvent, error) {
	for len(b) > 0 {
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return dst, fail(CodeDataLoss, "part of the watch's events was dropped")
		}
		e := &pb.FilesystemEvent{}
		if err := proto.Unmarshal(v, e); err != nil {
			return dst, kind.Wrap(kind.Internal, "read event", "", err)
		}
		dst, b = append(dst, e), b[n:]
	}
	return dst, nil
}
