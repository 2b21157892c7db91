package record_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// quiet is a quiet record among busy ones.
type quiet struct {
	nc  *nats.Conn
	log *events.Log // a connection that has not read the record
	ref record.Ref

	reads chan *nats.Msg // requests to the store
}

const quietEvents, busyBetween = 150, 100

func newQuiet(t *testing.T) *quiet {
	t.Helper()
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	q := &quiet{ref: eventstest.NewRef(), reads: make(chan *nats.Msg, 10*quietEvents)}
	var err error
	if q.nc, err = nats.Connect("", nats.InProcessServer(srv)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.nc.Close)
	w := log.Writer(q.ref, 1)
	for i := range quietEvents {
		for range busyBetween {
			if err := q.nc.Publish("out.00.h.busy.p", []byte("anything")); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		e := process.Event{Seq: process.Seq(i + 1), Body: process.Wrote{Stream: process.Stdout, Offset: uint64(i), Data: []byte("x")}}
		if err := w.Append(t.Context(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	q.log = eventstest.Open(t, srv)
	if _, err := q.nc.ChanSubscribe("$JS.API.DIRECT.GET.OUT_00", q.reads); err != nil {
		t.Fatal(err)
	}
	if err := q.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return q
}

// spied returns the number of reads so far, and of those that made the store search.
func (q *quiet) spied(t *testing.T) (asked, walked int) {
	t.Helper()
	if err := q.nc.Flush(); err != nil { // all requests have arrived
		t.Fatal(err)
	}
	for {
		select {
		case m := <-q.reads:
			var req struct {
				Next  string `json:"next_by_subj"`
				Batch int    `json:"batch"`
			}
			if err := json.Unmarshal(m.Data, &req); err != nil {
				t.Fatal(err)
			}
			asked++
			if req.Next != "" || req.Batch > 0 {
				walked++
			}
		default:
			return asked, walked
		}
	}
}

// read reads the record's events after one seq to its end, and returns the result of spied.
func (q *quiet) read(t *testing.T, after process.Seq) (asked, walked int) {
	t.Helper()
	r := q.log.Read(q.ref, after)
	defer r.Close()
	for want := after; want < quietEvents; {
		batch, err := r.Next(t.Context(), 0)
		if err != nil {
			t.Fatalf("after event %d: %v", want, err)
		}
		for _, e := range batch {
			if want++; e.Seq != want {
				t.Fatalf("got event %d, want %d", e.Seq, want)
			}
		}
	}
	return q.spied(t)
}

// The store would scan 100 messages of other records for each message of a quiet one, and
// block other requests meanwhile.
func TestAQuietRecordIsReadWithoutScanningOthers(t *testing.T) {
	q := newQuiet(t)
	for _, after := range []process.Seq{0, 1, 40, quietEvents - 1} {
		asked, walked := q.read(t, after)
		if asked < quietEvents-int(after) || walked > 40 {
			t.Errorf("after %d: %d reads, %d of them searches; want one per event, and a few searches", after, asked, walked)
		}
	}
}

func TestAQuietRecordWithoutItsBeginningIsGone(t *testing.T) {
	q := newQuiet(t)
	js, err := jetstream.New(q.nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "OUT_00")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(10*(busyBetween+1)+1)); err != nil {
		t.Fatal(err)
	}
	r := q.log.Read(q.ref, 0)
	defer r.Close()
	_, err = r.Next(t.Context(), 0)
	if first, ok := record.FirstSeq(err); !kind.Is(err, kind.Gone) || !ok || first != 11 {
		t.Errorf("%v, first %d; want Gone, 11", err, first)
	}
	q.read(t, 10)
}
