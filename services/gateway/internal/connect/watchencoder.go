package connect

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	pb "github.com/millrace/millrace/schema/filesystem"
)

// watchEncoder encodes the record of a watch as WatchDir's events
// (stream.Encoder).
type watchEncoder struct {
	format    format
	gzip      bool
	bare      bool // only fields of E2B's schema
	keepalive time.Duration
	resumed   bool // the start event is due at once
	started   bool
	sent      bool // since AppendIdle
	seq       process.Seq
	last      time.Time
}

// AppendEvent appends the encoding of ev.
func (e *watchEncoder) AppendEvent(dst []byte, ev process.Event) ([]byte, error) {
	e.seq = ev.Seq
	switch b := ev.Body.(type) {
	case process.Started:
		return e.start(dst)
	case process.Wrote:
		return e.wrote(dst, b.Data)
	case process.Failed:
		return dst, kind.New(kind.Kind(b.Kind), "watch", "", b.Message)
	case process.Truncated:
		return dst, fail(CodeDataLoss, "the watch produced more events than can be recorded")
	case process.Omitted:
		return dst, fail(CodeDataLoss, "the sandbox does not keep the events of the watch")
	case process.Gap:
		return dst, fail(CodeDataLoss, "events %d to %d of the watch cannot be read: %s", b.From, b.To, b.Reason)
	case process.Finished:
		return dst, fail(CodeUnavailable, "the watch has ended: %s", b.Exit.Cause)
	case process.Accepted, process.StdinAcked, process.Resized, process.Signaled, process.Exited, process.Lost:
	}
	return dst, nil
}

func (e *watchEncoder) start(dst []byte) ([]byte, error) {
	if e.started {
		return dst, nil
	}
	e.started = true
	return e.append(dst, &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}})
}

func (e *watchEncoder) wrote(dst, data []byte) ([]byte, error) {
	dst, err := e.start(dst)
	if err != nil {
		return dst, err
	}
	list, err := appendFileEvents(nil, data)
	for i, ev := range list {
		res := &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: ev}}
		if i == len(list)-1 {
			res.Seq = e.seq // the frame's other events are replayed together with it
		}
		var failed error
		if dst, failed = e.append(dst, res); failed != nil {
			return dst, failed
		}
	}
	return dst, err
}

func (e *watchEncoder) append(dst []byte, res *pb.WatchDirResponse) ([]byte, error) {
	e.sent = true
	if e.bare {
		res.Seq = 0
	}
	var m proto.Message = res
	if !e.gzip {
		dst, at := openEnvelope(dst)
		dst, err := e.format.append(dst, m)
		return closeEnvelope(dst, at, 0), err
	}
	raw, err := e.format.append(nil, m)
	dst, at := openEnvelope(dst)
	return closeEnvelope(appendGzip(dst, raw), at, flagCompressed), err
}

// AppendIdle appends keepalives.
func (e *watchEncoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) {
	if e.resumed {
		e.resumed = false
		dst, _ = e.start(dst)
	}
	now := time.Now()
	switch {
	case e.sent || e.last.IsZero():
		e.last, e.sent = now, false
	case now.Sub(e.last) >= e.keepalive:
		if e.started {
			dst, _ = e.append(dst, &pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}})
		}
		e.last, e.sent = now, false
	}
	return dst, e.keepalive - now.Sub(e.last)
}

// AppendEnd appends the last envelope.
func (e *watchEncoder) AppendEnd(dst []byte, err error) []byte {
	at, position := cursor{seq: e.seq}, ""
	if kind.Is(err, kind.Unavailable) {
		position = string(at.append(nil))
	}
	return appendEnd(dst, err, position)
}
