package events

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/events/internal/streams"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// A replica that lags has no message of a record yet. The leader has it, so a search in the
// record finds the event, and a hole that only this replica has is no gap.
func TestWhatAReplicaLacksIsReadFromTheLeader(t *testing.T) {
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), MaxStore: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	l, err := Open(t.Context(), Config{InProcess: srv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	ref := Ref{Host: "host", ID: process.NewID(sandbox.NewID())}
	stream, subject := streams.Out(streams.ShardOf(ref.Host, l.shards)), ref.subject(l.shards)
	w := l.Writer(ref, 1)
	for seq := process.Seq(1); seq <= 20; seq++ {
		e := process.Event{Seq: seq, Time: time.Unix(1, 0), Body: process.Wrote{Stream: process.Stdout, Offset: seq - 1, Data: []byte("x")}}
		if err := w.Append(t.Context(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	refuseDirectGets(t, l, stream)
	lagging(t, l, stream)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if rev, err := l.seek(ctx, stream, subject, 11); rev != 11 || err != nil {
		t.Errorf("seek event 11: got message %d, %v; want 11", rev, err)
	}
	if chunks, whole := l.between(ctx, ref, 5, 6, 10); !whole || len(chunks) != 4 {
		t.Errorf("between 5 and 10: got %d messages, whole %v; want 4", len(chunks), whole)
	}
	if rev, ok := l.readable(ctx, stream, subject, 5, 10); rev != 6 || !ok {
		t.Errorf("first readable message after 5: got %d, %v; want 6", rev, ok)
	}
}

// refuseDirectGets stops the server from answering direct gets of a stream.
func refuseDirectGets(t *testing.T, l *Log, stream string) {
	t.Helper()
	s, err := l.js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := l.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}
