package record_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// write appends an unfinished record of n outputs of size bytes.
func write(t *testing.T, log *events.Log, ref record.Ref, n, size int) *record.Writer {
	t.Helper()
	w := log.Writer(ref, 1)
	for i := range n {
		e := process.Event{Seq: process.Seq(i + 1), Time: time.Unix(1, 0), Body: process.Wrote{
			Stream: process.Stdout, Offset: uint64(i * size), Data: eventstest.Noise(i, size),
		}}
		if err := w.Append(t.Context(), []process.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func TestGoneReportsTheFirstRemainingEvent(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ref := eventstest.NewRef()
	write(t, log, ref, 20, 64)
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "OUT_00")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(11)); err != nil {
		t.Fatal(err)
	}
	for _, after := range []process.Seq{0, 1, 9} {
		r := log.Read(ref, after)
		_, err := r.Next(t.Context(), 0)
		r.Close()
		if first, ok := record.FirstSeq(err); !kind.Is(err, kind.Gone) || !ok || first != 11 {
			t.Errorf("after %d: %v, first %d; want Gone, 11", after, err, first)
		}
	}
	r := log.Read(ref, 10)
	defer r.Close()
	if got, err := r.Next(t.Context(), 0); err != nil || got[0].Seq != 11 {
		t.Errorf("after 10: %v, %v", got, err)
	}
}

func TestADamagedBlockIsReportedAsAGap(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ref := eventstest.NewRef()
	const n = 80
	w := write(t, log, ref, n, 256<<10) // more than one block of 8 MiB
	blocks, err := filepath.Glob(filepath.Join(srv.Dir(), "jetstream", "*", "streams", "OUT_00", "msgs", "1.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatalf("blocks: %v, %v", blocks, err)
	}
	srv.Stop()
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x40
	if err := os.WriteFile(blocks[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	srv.Resume()
	end := process.Event{Seq: n + 1, Time: time.Unix(2, 0), Body: process.Finished{}}
	if err := w.Append(t.Context(), []process.Event{end}); err != nil {
		t.Fatal(err)
	}
	r := log.Read(ref, 0)
	defer r.Close()
	next, gaps := process.Seq(1), 0
	for {
		batch, err := r.Next(t.Context(), 10*time.Second)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || len(batch) == 0 {
			t.Fatalf("after %d: %v", r.After(), err)
		}
		for _, e := range batch {
			if g, ok := e.Body.(process.Gap); ok {
				if g.From != next || g.To != e.Seq {
					t.Errorf("gap %+v at %d, want from %d", g, e.Seq, next)
				}
				gaps++
			} else if e.Seq != next {
				t.Fatalf("got event %d, want %d or a gap", e.Seq, next)
			}
			next = e.Seq + 1
		}
	}
	if gaps == 0 || next != n+2 {
		t.Errorf("%d gaps, ended before %d; want a gap and %d", gaps, next, n+2)
	}
}

func TestSeekFindsEveryEventOfAnUnevenRecord(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref, noise := eventstest.NewRef(), eventstest.NewRef()
	w, other := log.Writer(ref, 1), log.Writer(noise, 1)
	filler := eventstest.Script(4000)
	const n = 300
	all := eventstest.Script(n)
	for i, used := 0, 0; i < n; {
		step := min(1+i%13, n-i) // messages of 1 to 13 events, in distant clusters
		eventstest.AppendAll(t, w, all[i:i+step], step)
		i += step
		if i%5 == 0 {
			more := min(used+97, len(filler)-2)
			eventstest.AppendAll(t, other, filler[used:more], 1)
			used = more
		}
	}
	for after := process.Seq(0); after < n; after++ {
		r := log.Read(ref, after)
		got, err := r.Next(t.Context(), 0)
		r.Close()
		if err != nil || got[0].Seq != after+1 {
			t.Fatalf("after %d: %v, %v", after, got, err)
		}
	}
}

func TestSeqsAroundFindsEveryTimeInAnUnevenRecord(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	ref, noise := eventstest.NewRef(), eventstest.NewRef()
	w, other := log.Writer(ref, 1), log.Writer(noise, 1)
	filler := eventstest.Script(600)
	const n = 200
	all := eventstest.Script(n)
	begin := time.Unix(1_700_000_000, 0)
	for i := range all {
		all[i].Time = begin.Add(time.Duration(i/3*i) * time.Millisecond) // two or three at once, at growing intervals
	}
	for i, used := 0, 0; i < n; {
		step := min(1+i%13, n-i)
		eventstest.AppendAll(t, w, all[i:i+step], step)
		i += step
		more := min(used+23, len(filler)-2)
		eventstest.AppendAll(t, other, filler[used:more], 1)
		used = more
	}
	for at := begin.Add(-time.Second); !at.After(all[n-1].Time.Add(time.Second)); at = at.Add(7 * time.Millisecond) {
		before, after, err := log.SeqsAround(t.Context(), ref, at)
		if err != nil {
			t.Fatal(err)
		}
		if after < before || after > before+13 ||
			before > 0 && !all[before-1].Time.Before(at) || after < n && all[after].Time.Before(at) {
			t.Fatalf("%v: between %d and %d", at.Sub(begin), before, after)
		}
	}
	if _, _, err := log.SeqsAround(t.Context(), eventstest.NewRef(), begin); !kind.Is(err, kind.NotFound) {
		t.Errorf("without a record: %v", err)
	}
}
