package connect

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	pb "github.com/millrace/millrace/schema/process"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

// connect serves Connect: it streams the record of an existing process, whether or
// not the process or its sandbox is still running.
func (h *Handler) connect(c *fiber.Ctx, r *call, raw []byte) error {
	var req pb.ConnectRequest
	if err := r.format.decode(raw, &req); err != nil {
		return err
	}
	want, err := parseReplayFrom(option(c, "replay_from", "X-Replay-From"))
	if err != nil {
		return err
	}
	ctx, cancel := r.context(c)
	defer cancel()
	sum, err := h.find(ctx, r, req.GetProcess())
	if err != nil {
		return err
	}
	if err := checkPosition(ctx, h.core, r, sum.ID, &want); err != nil {
		return err
	}
	src, err := h.core.Read(ctx, r.principal, sum.ID, want.seq)
	if err != nil {
		return err
	}
	if want.seq == 0 {
		principal := r.principal
		src = &retained{Source: src, first: record.FirstSeq, read: func(ctx context.Context, after process.Seq) (stream.Source, error) {
			return h.core.Read(ctx, principal, sum.ID, after)
		}}
	}
	pid := sum.PID
	if pid == 0 && want.seq > 0 {
		pid = h.startedAs(ctx, r, sum.ID, want.seq)
	}
	return h.serve(c, r, sum.ID, &sum.Spec, src, func(e *encoder) {
		e.open(pid, &want)
	})
}

// startedAs returns the pid of a process whose summary does not have it yet, from its record: a
// gateway that has just started may not have caught up. A stream that resumes after seq does
// not contain the start, and clients require it first. It returns 0 if the process had not
// started by then or the beginning of its record has expired.
func (h *Handler) startedAs(ctx context.Context, r *call, id process.ID, seq process.Seq) uint32 {
	src, err := h.core.Read(ctx, r.principal, id, 0)
	if err != nil {
		return 0
	}
	defer src.Close()
	for src.After() < seq {
		batch, err := src.Next(ctx, time.Second)
		for i := range batch {
			if b, ok := batch[i].Body.(process.Started); ok {
				return b.PID
			}
		}
		if err != nil {
			return 0
		}
	}
	return 0
}

// checkPosition checks a requested position against the record, and replaces "live"
// by the position that it stands for.
func checkPosition(ctx context.Context, in Records, r *call, id process.ID, want *replayFrom) error {
	if want.seq == 0 && !want.live {
		return nil
	}
	tip, err := core.TailFrom(ctx, in, r.principal, id, want.seq)
	if err != nil {
		return err
	}
	switch {
	case want.live && tip.Finished != nil:
		want.seq = tip.Last - 1 // so that the client still receives the exit
	case want.live:
		want.seq = tip.Last
	case want.seq > tip.Last && !tip.Stale:
		return fail(CodeOutOfRange, "X-Replay-From is past the end: the last frame is %d", tip.Last)
	}
	return nil
}

// retained reads a record from its first frame. If retention has removed that frame, it
// reads from the first one left, preceded by a process.Gap event.
type retained struct {
	stream.Source
	first func(error) (process.Seq, bool) // extracts the first retained frame from an error
	read  func(ctx context.Context, after process.Seq) (stream.Source, error)
}

// Next implements stream.Source.
func (s *retained) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := s.Source.Next(ctx, idle)
	first, ok := s.first(err)
	if !ok || first <= 1 || len(batch) > 0 || s.Source.After() > 0 {
		return batch, err
	}
	src, failed := s.read(ctx, first-1)
	if failed != nil {
		return nil, err
	}
	s.Source.Close()
	s.Source = src
	return []process.Event{{Seq: first - 1, Body: process.Gap{From: 1, To: first - 1, Reason: retention}}}, nil
}
