package events

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/natsd"
)

// lagging answers direct gets of a stream as lagging replicas may: first that no server has
// the stream, then that the message does not exist. It counts them.
func lagging(t *testing.T, l *Log, stream string) *atomic.Int32 {
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
	asked := lagging(t, l, "LATE")
	f, err := l.follow("LATE", "late.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	f.target = 1  // a live message was seen, and no other follows
	f.idle.Stop() // the timer causes no read either
	if _, err := l.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LATE", Subjects: []string{"late.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.publishPlain(t.Context(), "late.x", []byte("end")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := f.next(ctx, nil)
	if err != nil || len(got) != 1 || string(got[0].data) != "end" || got[0].seq != 1 {
		t.Errorf("after %d reads: %v, %v", asked.Load(), got, err)
	}
}

// Silence is reported even while the store is unavailable.
func TestAFeedReportsSilenceDuringAnOutage(t *testing.T) {
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
	f, err := l.follow("NONE", "none.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	quiet := make(chan time.Time, 1)
	quiet <- time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if got, err := f.next(ctx, quiet); err != nil || len(got) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
