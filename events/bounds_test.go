package events_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

func jetStream(t *testing.T, s nats.InProcessConnProvider) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A message that exceeds the size limit is rejected at once, without retries.
func TestATooLargeMessageIsRejected(t *testing.T) {
	log := eventstest.OpenWith(t, eventstest.Start(t), events.Config{})
	s, err := log.AppendBuild(t.Context(), &build.State{ID: build.NewID(), Tenant: "alice"}, build.Requested{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		n    int
		want kind.Kind
	}{{3 << 20, kind.Invalid}, {1 << 20, 0}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := log.AppendBuild(ctx, &s, build.Started{Spec: build.Spec{Start: strings.Repeat("x", tt.n)}})
		cancel()
		if kind.Of(err) != tt.want {
			t.Errorf("of %d bytes: %v, want kind %s", tt.n, err, tt.want)
		}
	}
}

// A process that prints for ever must not fill the store: the oldest output is dropped, and
// everything else can still be stored.
func TestTheOldestOutputIsDroppedAtTheLimit(t *testing.T) {
	s := eventstest.Start(t)
	log := eventstest.OpenWith(t, s, events.Config{MaxOutput: 4 << 20})
	ref, all := eventstest.NewRef(), eventstest.Script(4)
	w := log.Writer(ref, 1)
	eventstest.AppendAll(t, w, all[:2], 2)
	const chunk, chunks = 128 << 10, 64
	data := eventstest.Noise(1, chunk)
	for i := range chunks {
		eventstest.AppendAll(t, w, []process.Event{{Seq: w.Last() + 1, Time: time.Unix(1, 0),
			Body: process.Wrote{Stream: process.Stdout, Offset: uint64(i * chunk), Data: data}}}, 1)
	}
	r := log.Read(ref, 0)
	_, err := r.Next(t.Context(), time.Minute)
	r.Close()
	first, ok := record.FirstSeq(err)
	if !kind.Is(err, kind.Gone) || !ok || first < 3 || first > w.Last() {
		t.Fatalf("%v, first %d; want Gone and what is left", err, first)
	}
	eventstest.AppendAll(t, w, []process.Event{{Seq: w.Last() + 1, Time: time.Unix(1, 0), Body: process.Finished{}}}, 1)
	r = log.Read(ref, first-1)
	defer r.Close()
	for want := first; ; {
		batch, err := r.Next(t.Context(), time.Minute)
		if errors.Is(err, io.EOF) && want == w.Last()+1 {
			return
		}
		if err != nil {
			t.Fatalf("at %d: %v", want, err)
		}
		for _, e := range batch {
			if e.Seq != want {
				t.Fatalf("event %d; want %d", e.Seq, want)
			}
			want++
		}
	}
}

// On a disk of any small size each stream gets some space, and so do records without a
// limit of their own.
func TestStreamsFitOnAnySmallDisk(t *testing.T) {
	for mib := int64(96); mib <= 2048; mib += 61 {
		srv, err := natsd.Start(natsd.Config{Dir: t.TempDir(), MaxStore: mib << 20})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		log, err := events.Open(ctx, events.Config{InProcess: srv})
		if err != nil {
			t.Errorf("%d MiB: %v", mib, err)
		} else {
			view := eventstest.View(t, log)
			if _, err := view.CreateSandbox(ctx, "t", sandbox.NewID(), sandbox.Requested{Template: "base"}); err != nil {
				t.Errorf("%d MiB: a sandbox: %v", mib, err)
			}
			log.Close()
		}
		cancel()
		srv.Stop()
	}
}

func TestStreamLimitsShrinkToTheDisk(t *testing.T) {
	s := eventstest.Start(t)
	const shards = 4
	for range 2 { // the second finds the streams of the first
		eventstest.OpenWith(t, s, events.Config{MaxOutput: 1 << 60, Retention: time.Second, Shards: shards})
	}
	js, all := jetStream(t, s), int64(0)
	for i := range shards {
		out, err := js.Stream(t.Context(), fmt.Sprintf("OUT_%02x", i))
		if err != nil {
			t.Fatal(err)
		}
		got := out.CachedInfo().Config.MaxBytes
		if got < 1<<20 || i > 0 && got != all/int64(i) {
			t.Errorf("stream %d may take %d bytes", i, got)
		}
		all += got
	}
	// As many bytes can still be reserved by others.
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "REST", Subjects: []string{"rest"}, MaxBytes: all - 1<<30})
	if err != nil {
		t.Errorf("nothing is left for others: %v", err)
	}
}

// A process may be silent for longer than the retention.
func TestAWriterContinuesAfterItsRecordFellOutOfRetention(t *testing.T) {
	s := eventstest.Start(t)
	log := eventstest.Open(t, s)
	for _, newRun := range []bool{false, true} {
		ref, all := eventstest.NewRef(), eventstest.Script(6)
		w := log.Writer(ref, 1)
		eventstest.AppendAll(t, w, all[:3], 2)
		eventstest.Forget(t, s, "OUT_")
		if newRun {
			w = log.Writer(ref, 2)
			if _, err := w.Recover(t.Context()); !kind.Is(err, kind.NotFound) {
				t.Fatalf("recover: %v", err)
			}
			w.ContinueAfter(3)
		}
		eventstest.AppendAll(t, w, all[3:], 1)
		r := log.Read(ref, 3)
		batch, err := r.Next(t.Context(), time.Minute)
		r.Close()
		if err != nil || len(batch) == 0 || batch[0].Seq != 4 {
			t.Errorf("new run %t: %v, %v", newRun, batch, err)
		}
		if tail, err := log.Tail(t.Context(), ref); err != nil || tail.Finished == nil || tail.Last != 6 {
			t.Errorf("new run %t: tail %+v, %v", newRun, tail, err)
		}
	}
}
