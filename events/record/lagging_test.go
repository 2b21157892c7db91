package record

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/internal/store"
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
	conn, err := store.Open(t.Context(), store.Config{
		InProcess: srv, Name: t.Name(), Log: slog.New(slog.DiscardHandler),
		Replicas: 1, Shards: 1, Retention: time.Hour, MaxOutput: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l := NewRecords(conn, time.Hour)
	ref := Ref{Host: "host", ID: process.NewID(sandbox.NewID())}
	stream, subject := streams.Out(streams.ShardOf(ref.Host, l.conn.Shards())), ref.subject(l.conn.Shards())
	w := l.Writer(ref, 1)
	for seq := process.Seq(1); seq <= 20; seq++ {
		e := process.Event{Seq: seq, Time: time.Unix(1, 0), Body: process.Wrote{Stream: process.Stdout, Offset: seq - 1, Data: []byte("x")}}
		if err := w.Append(t.Context(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	lag(t, srv, stream)
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

// lag makes direct gets of a stream respond as replicas that lag: first that no server has
// the stream, then that the message does not exist.
func lag(t *testing.T, srv *natsd.Server, stream string) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowDirect = false // the server does not respond itself
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	_, err = nc.Subscribe("$JS.API.DIRECT.GET."+stream, func(m *nats.Msg) {
		status := "404"
		if asked.Add(1) == 1 {
			status = "503"
		}
		if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {status}}}); err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}
