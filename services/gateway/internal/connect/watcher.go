package connect

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// How far a watcher's events were given is in the log (events.WatchPlace), so that
// any gateway answers the next call. It is stored before an answer leaves, as not
// given, and again when it is known what became of the answer: what is not known
// to have reached the client is given once more. The client's machine says what
// has; that something behind it lost an answer is not seen. Who must be sure names
// its place (X-Replay-From), or gives a call that it tries again the same
// Idempotency-Key: then it gets the same answer.

const (
	// settle is how long GetWatcherEvents waits for what happened just before.
	settle = 30 * time.Millisecond
	// maxFetched and maxFetchedBytes are about how many events one GetWatcherEvents
	// gives, and of how many bytes: names may be long.
	maxFetched      = 100_000
	maxFetchedBytes = 16 << 20
	// removedLook is between looks whether a watcher that was removed is gone.
	removedLook = 2 * time.Millisecond
	// settleTimeout bounds the word of what became of an answer, or of a watcher.
	settleTimeout = 5 * time.Second
)

// getWatcherEvents serves GetWatcherEvents: what happened since the last call that
// was answered, or since the seq that X-Replay-From names; the answer's
// X-Replay-From is where the next call goes on. Nothing is taken off the record.
func (h *Handler) getWatcherEvents(ctx context.Context, r *call, req *pb.GetWatcherEventsRequest) (proto.Message, error) {
	sum, err := h.watcher(ctx, r, req.GetWatcherId())
	if err != nil {
		return nil, err
	}
	for {
		at, err := h.core.WatchPlace(ctx, sum.ID)
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
		at.Rev, err = h.core.PutWatchPlace(ctx, sum.ID, at)
		switch {
		case kind.Is(err, kind.Conflict): // somebody else fetched them meanwhile
			continue
		case err != nil:
			return nil, err
		}
		r.sent = func(whole bool) { at.Rev = h.settle(sum.ID, at, whole) }
		return res, nil
	}
}

// span is what a call is to be given of the record: what is behind after, and, if
// until is not 0, no more than up to it.
func (r *call) span(at *events.WatchPlace) (after, until process.Seq, err error) {
	switch {
	case r.replay != "":
		want, err := parseWanted(r.replay)
		return want.seq, 0, err
	case r.key != "" && r.key == at.Key:
		return at.From, at.To, nil
	case at.Given:
		return at.To, 0, nil
	}
	return at.From, 0, nil
}

// settle stores what became of an answer, and gives the place's rev. Should that
// fail, the answer counts as lost; unless somebody went on from it already.
func (h *Handler) settle(id process.ID, at events.WatchPlace, whole bool) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout) // the request is over
	defer cancel()
	if at.Given = true; !whole {
		at.To = at.From
	}
	rev, _ := h.core.PutWatchPlace(ctx, id, at) //nolint:errcheck // then its events are given twice rather than never
	return max(rev, at.Rev)
}

// fetch reads the events of a watch's record from behind after, up to until if that
// is not 0, and tells how far it came.
func (h *Handler) fetch(ctx context.Context, r *call, id process.ID, after, until process.Seq) (*pb.GetWatcherEventsResponse, process.Seq, error) {
	src, err := h.core.Read(ctx, r.who, id, after)
	if err != nil {
		return nil, 0, err
	}
	defer src.Close()
	res := &pb.GetWatcherEventsResponse{}
	size := 0
	for end := after; ; end = src.After() {
		if until == 0 && (len(res.Events) >= maxFetched || size >= maxFetchedBytes) { // the same answer was within them before
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

// removeWatcher serves RemoveWatcher. It answers when the watcher is gone for
// everybody, or will be soon.
func (h *Handler) removeWatcher(ctx context.Context, r *call, req *pb.RemoveWatcherRequest) (proto.Message, error) {
	sum, err := h.watcher(ctx, r, req.GetWatcherId())
	if err == nil {
		err = h.core.Signal(ctx, r.who, sum.ID, int32(syscall.SIGKILL))
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	look := time.NewTicker(removedLook)
	defer look.Stop()
	for ctx.Err() == nil {
		if sum, err := h.findWatch(ctx, r, sum.ID); err != nil || !sum.Active() {
			break
		}
		select {
		case <-look.C:
		case <-ctx.Done():
		}
	}
	return &pb.RemoveWatcherResponse{}, nil
}

// appendFileEvents reads the events of a watch's output, which holds whole ones.
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
