package events_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
)

// BenchmarkAppend measures the durable rate of one process with one message in flight.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			log := eventstest.Open(b, eventstest.Start(b))
			w := log.Writer(eventstest.NewRef(), 1)
			data := make([]byte, size)
			b.SetBytes(int64(size))
			for seq := process.Seq(1); b.Loop(); seq++ {
				e := process.Event{Seq: seq, Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Offset: seq * uint64(size), Data: data}}
				if err := w.Append(b.Context(), []process.Event{e}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendToReader is BenchmarkAppend with a live reader.
func BenchmarkAppendToReader(b *testing.B) {
	for _, size := range []int{64, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			log := eventstest.Open(b, eventstest.Start(b))
			ref := eventstest.NewRef()
			w, r := log.Writer(ref, 1), log.Read(ref, 0)
			defer r.Close()
			data := make([]byte, size)
			b.SetBytes(int64(size))
			done := make(chan struct{})
			n := process.Seq(b.N)
			go func() {
				defer close(done)
				for r.After() < n {
					if _, err := r.Next(b.Context(), 0); err != nil {
						b.Error(err)
						return
					}
				}
			}()
			for seq := process.Seq(1); seq <= n; seq++ {
				e := process.Event{Seq: seq, Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Offset: seq * uint64(size), Data: data}}
				if err := w.Append(b.Context(), []process.Event{e}); err != nil {
					b.Fatal(err)
				}
			}
			<-done
		})
	}
}

// BenchmarkResume measures the time from Read on another connection to the first event, at
// random positions in a record of a million events.
func BenchmarkResume(b *testing.B) {
	srv := eventstest.Start(b)
	log := eventstest.Open(b, srv)
	ref := eventstest.NewRef()
	w := log.Writer(ref, 1)
	const n, step = 1_000_000, 50
	batch := make([]process.Event, step)
	for seq := process.Seq(1); seq <= n; seq += step {
		for i := range batch {
			batch[i] = process.Event{Seq: seq + process.Seq(i), Time: time.Now(), Body: process.Wrote{Stream: process.Stdout, Data: []byte("a line of output\n")}}
		}
		if err := w.Append(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	other := eventstest.Open(b, srv)
	b.ResetTimer()
	for i := range b.N {
		r := other.Read(ref, process.Seq(i)*7919%(n-1)+1)
		if _, err := r.Next(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}
