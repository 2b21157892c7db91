package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/natsd"
)

// openConn returns a connection to a server of its own.
func openConn(t *testing.T) *Conn {
	t.Helper()
	srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), MaxStore: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	l, err := Open(t.Context(), Config{
		InProcess: srv, Replicas: 1, Shards: 1, Retention: time.Hour, MaxOutput: 1 << 30, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// lagging answers direct gets of a stream as lagging replicas may: first that no server has
// the stream, then that the message does not exist. It counts them.
func lagging(t *testing.T, l *Conn, stream string) *atomic.Int32 {
	t.Helper()
	var asked atomic.Int32
	_, err := l.nc.Subscribe("$JS.API.DIRECT.GET."+stream, func(m *nats.Msg) {
		status := "404"
		if asked.Add(1) == 1 {
			status = "503"
		}
		if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {status}}}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &asked
}

// No message follows the last one of a record to cause another read. So a failed read is
// retried, and a message that a replica does not have is read from the leader.
func TestAFeedReadsTheLastMessageDespiteALaggingReplica(t *testing.T) {
	l := openConn(t)
	asked := lagging(t, l, "LATE")
	f, err := l.Follow("LATE", "late.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	f.target = 1  // a live message was seen, and no other follows
	f.idle.Stop() // the timer causes no read either
	if _, err := l.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LATE", Subjects: []string{"late.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.PublishPlain(t.Context(), "late.x", []byte("end")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := f.Next(ctx, nil)
	if err != nil || len(got) != 1 || string(got[0].Data) != "end" || got[0].Seq != 1 {
		t.Errorf("after %d reads: %v, %v", asked.Load(), got, err)
	}
}

// Silence is reported even while the store is unavailable.
func TestAFeedReportsSilenceDuringAnOutage(t *testing.T) {
	l := openConn(t)
	f, err := l.Follow("NONE", "none.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	quiet := make(chan time.Time, 1)
	quiet <- time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if got, err := f.Next(ctx, quiet); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
