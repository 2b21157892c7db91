package catalog

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/fold"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/kind"
	pb "github.com/millrace/millrace/schema/event/v1"
)

// Build is a build in the view.
type Build struct {
	build.State
	Received time.Time // local time at which its last event arrived

	lines []lineMark // positions of the log's lines in the stream, in order
}

// lineMark maps the first line in a message of a build's record to that message.
type lineMark struct {
	first int
	rev   uint64
}

// buildDocs describes builds. Their records are lists of events, which AppendBuild appends
// and applyBuild folds. A view drops them when the stream removes their records.
var buildDocs = &fold.Document[build.ID, Build]{
	Name: "build", Stream: streams.Builds,
	Subject: func(b *Build) string { return buildSubject(b.Tenant, b.ID) },
	Key:     func(b *Build) build.ID { return b.ID },
	Compare: func(a, b Build) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(string(a.ID), string(b.ID)))
	},
	Over: func(b *Build) (time.Time, bool) { return b.Created, true },
	Keep: streams.AuditAge,
}

func buildSubject(tenant string, id build.ID) string { return "build." + tenant + "." + string(id) }

// AppendBuild stores facts in a build's record, all or none; see AppendSandbox.
func (d *Documents) AppendBuild(ctx context.Context, s *build.State, bodies ...build.Body) (build.State, error) {
	now := time.Now()
	b := &pb.BuildBatch{Build: string(s.ID), Tenant: s.Tenant, FirstSeq: s.Seq + 1}
	after := *s
	for i, body := range bodies {
		b.Frames = append(b.Frames, codec.BuildFrame(now, body))
		var err error
		if after, err = after.Apply(build.Event{Seq: s.Seq + 1 + uint64(i), Time: now, Body: body}); err != nil {
			return *s, kind.Wrap(kind.Conflict, "append", string(s.ID), err)
		}
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return *s, kind.Wrap(kind.Internal, "append", string(s.ID), err)
	}
	rev, err := d.conn.Put(ctx, streams.Builds, buildSubject(s.Tenant, s.ID), s.Rev, data)
	if err != nil {
		return *s, err
	}
	after.Rev = rev
	return after, nil
}

func (v *View) applyBuild(m store.Message) error {
	tenant, id, events, err := codec.DecodeBuild(m.Data)
	if err != nil {
		return err
	}
	b := v.builds.Docs[id]
	b.ID, b.Tenant, b.Received = id, tenant, time.Now()
	before := b.Lines
	for _, e := range events {
		if b.State, err = b.Apply(e); err != nil {
			v.conn.Log().Warn("apply event failed", "build", id, "seq", e.Seq, "err", err)
			b.Seq = e.Seq
		}
	}
	if b.Lines > before {
		b.lines = append(b.lines, lineMark{before, m.Seq}) // holders of an older b do not read that far
	}
	b.Rev = m.Seq
	v.builds.Set(b)
	return nil
}

// Build returns a build's state.
func (v *View) Build(id build.ID) (Build, bool) { return v.builds.Get(id) }

// Builds returns the builds for which keep is true, newest first.
func (v *View) Builds(keep func(*Build) bool) []Build { return v.builds.List(keep) }

// BuildLines reads a build's log from line from on. It returns at most most of the lines
// for which keep is true, and whether there may be more.
func (d *Documents) BuildLines(ctx context.Context, b *Build, from, most int, keep func(*build.Line) bool) ([]build.Line, bool, error) {
	at, _ := slices.BinarySearchFunc(b.lines, from+1, func(m lineMark, line int) int { return m.first - line })
	if from >= b.Lines || at == 0 {
		return nil, false, nil
	}
	var out []build.Line
	tries := 0
	for n, rev := b.lines[at-1].first, b.lines[at-1].rev; n < b.Lines; {
		msgs, err := d.conn.DirectGet(ctx, streams.Builds, store.GetRequest{Seq: rev, Next: buildSubject(b.Tenant, b.ID), Batch: store.BatchSize, MaxBytes: store.BatchBytes})
		if err != nil {
			return out, false, err
		}
		if len(msgs) == 0 { // the replica lags, or the line fell out of retention
			if tries == store.LaggingTries || !d.conn.Backoff(ctx, &tries) {
				return out, false, kind.New(kind.Gone, "read log", string(b.ID), "the build's log fell out of retention")
			}
			continue
		}
		for _, m := range msgs {
			rev = m.Seq + 1
			for _, line := range linesOf(m.Data) {
				if n++; n <= from || n > b.Lines || !keep(&line) {
					continue
				}
				if len(out) == most {
					return out, true, nil
				}
				out = append(out, line)
			}
		}
	}
	return out, false, nil
}

func linesOf(data []byte) []build.Line {
	_, _, events, err := codec.DecodeBuild(data)
	if err != nil {
		return nil // the fold counted no lines either
	}
	var out []build.Line
	for _, e := range events {
		if m, ok := e.Body.(build.Logged); ok {
			out = append(out, m.Lines...)
		}
	}
	return out
}
