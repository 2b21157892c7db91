package screens

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	recordlog "github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/core"
	"github.com/millrace/millrace/services/gateway/internal/stream"
)

const (
	longEvents = 1024
	longChunk  = 64 << 10
)

// long is a record of 64 MiB of output in memory: a terminal with a colored log.
type long struct {
	chunk  []byte
	policy sandbox.Policy
}

func newLong() *long {
	var b strings.Builder
	for i := 0; b.Len() < longChunk; i++ {
		fmt.Fprintf(&b, "\x1b[3%dmline\x1b[0m %d of a build log that is eighty columns wide or so, more or less\r\n", i%8, i)
	}
	return &long{chunk: []byte(b.String()[:longChunk])}
}

func (l *long) Process(_ context.Context, _ core.Principal, id process.ID) (process.Summary, error) {
	return process.Summary{ID: id, Spec: process.Spec{Record: l.policy, PTY: &process.Size{Cols: 80, Rows: 24}}}, nil
}

func (l *long) Tail(context.Context, core.Principal, process.ID) (recordlog.Tail, error) {
	return recordlog.Tail{Last: longEvents}, nil
}

func (l *long) Read(_ context.Context, _ core.Principal, _ process.ID, after process.Seq) (stream.Source, error) {
	return &longSource{l, after}, nil
}

type longSource struct {
	of *long
	at process.Seq
}

func (s *longSource) After() process.Seq { return s.at }
func (s *longSource) Close()             {}

func (s *longSource) Next(context.Context, time.Duration) ([]process.Event, error) {
	if s.at == longEvents {
		return nil, io.EOF
	}
	s.at++
	return []process.Event{{Seq: s.at, Time: time.Now(), Body: process.Wrote{Stream: process.PTY, Data: s.of.chunk}}}, nil
}

// BenchmarkFirstScreen folds the whole record, as a gateway does that has no key frame of it.
func BenchmarkFirstScreen(b *testing.B) {
	l := newLong()
	b.SetBytes(longEvents * longChunk)
	for b.Loop() {
		f := newFolds(l, defaultCache)
		if _, err := f.at(b.Context(), core.Principal{}, process.NewID("i1"), 0); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(defaultCache-f.cache.free)/float64(f.cache.byUse.Len()), "B/key-frame")
	}
}

// BenchmarkSeek shows a random event of a record whose key frames are cached. Its cost does not
// depend on the length of the record.
func BenchmarkSeek(b *testing.B) {
	f, id := newFolds(newLong(), defaultCache), process.NewID("i1")
	if _, err := f.at(b.Context(), core.Principal{}, id, 0); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		at, err := f.at(b.Context(), core.Principal{}, id, rand.Uint64N(longEvents)+1)
		if err != nil {
			b.Fatal(err)
		}
		frameOf(at, nil).screen()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
}

// BenchmarkPublish measures what one frame of a live terminal costs, however many watch it.
func BenchmarkPublish(b *testing.B) {
	f := &folded{id: "p", screen: newScreen(&process.Spec{PTY: &process.Size{Cols: 80, Rows: 24}})}
	chunk := newLong().chunk[:32<<10]
	var last *frame
	b.ReportAllocs()
	for b.Loop() {
		f.screen.Write(chunk)
		last = frameOf(f, last)
	}
}
