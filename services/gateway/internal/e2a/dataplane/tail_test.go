package dataplane

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/surfacetest"
)

// readTail reads the end of a record of which retention kept the events from first on; it returns how
// many events were read.
func readTail(t testing.TB, r *surfacetest.Record, first process.Seq, lim limit) (content string, total uint64, events int) {
	t.Helper()
	x := &tail{limit: lim}
	err := x.read(context.Background(), process.Seq(len(r.Events)), func(_ context.Context, after process.Seq) (stream.Source, error) {
		if after+1 < first {
			return nil, &record.RangeError{Kind: kind.Gone, First: first}
		}
		src := r.Source(after)
		src.Batch = 7
		return &counted{src, &events}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(x.content()), x.total(), events
}

type counted struct {
	*surfacetest.Source
	n *int
}

func (c *counted) Next(ctx context.Context, idle time.Duration) ([]process.Event, error) {
	batch, err := c.Source.Next(ctx, idle)
	*c.n += len(batch)
	return batch, err
}

// wantTail is the specification: what a client gets of a whole log.
func wantTail(log string, lim limit) string {
	n, begin := maxBytes, len(log)
	if lim.bytes > 0 {
		n, begin = lim.bytes, 0
	}
	if lines := strings.SplitAfter(log, "\n"); lim.lines > 0 {
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		begin = len(strings.Join(lines[:max(0, len(lines)-lim.lines)], ""))
	}
	if begin = max(begin, len(log)-n); begin > 0 && log[begin-1] != '\n' {
		i := strings.IndexByte(log[begin:], '\n')
		if i < 0 {
			return ""
		}
		begin += i + 1
	}
	return log[begin:]
}

// E-111, E-112, E-116, E-117, E-118, E-119.
func TestTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	logs := map[string]int{"": 1, "\n": 1, "a": 1, "a\n": 1, "a\nb": 1, "a\n\n\nb\n": 2, strings.Repeat("x", 30): 7, strings.Repeat("line\n", 500): 9}
	logs[strings.Repeat(strings.Repeat("y", 1023)+"\n", 3000)] = 5000
	logs[strings.Repeat("z", maxBytes+5)] = 60_000
	for range 10 {
		var b strings.Builder
		for range 400 {
			b.WriteString(strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(30)))
			b.WriteByte('\n')
		}
		logs[b.String()] = 1 + rng.IntN(40)
	}
	for log, size := range logs {
		var bodies []process.Body
		for rest := log; rest != ""; {
			n := min(len(rest), 1+rng.IntN(size))
			bodies, rest = append(bodies, process.Wrote{Stream: process.Stdout + process.Stream(rng.IntN(2)), Data: []byte(rest[:n])}), rest[n:]
		}
		r := surfacetest.NewRecord("log", process.Spec{}, append(bodies, surfacetest.Code(0))...)
		for _, lim := range []limit{{lines: 1}, {lines: 2}, {lines: 100}, {lines: maxLines}, {bytes: 1}, {bytes: 4}, {bytes: 5}, {bytes: 1000}, {bytes: maxBytes}} {
			got, total, _ := readTail(t, r, 1, lim)
			if want := wantTail(log, lim); got != want || total != uint64(len(log)) {
				t.Errorf("%+v of %d bytes: %d bytes %.40q, total %d; want %d bytes %.40q", lim, len(log), len(got), got, total, len(want), want)
			}
		}
	}
}

// The end of a long record is read, and not the record.
func TestTailReadsBackwards(t *testing.T) {
	var bodies []process.Body
	for i := range 20_000 {
		bodies = append(bodies, process.Wrote{Stream: process.Stdout + process.Stream(i%2), Data: fmt.Appendf(nil, "%d\n", i)})
	}
	r := surfacetest.NewRecord("long", process.Spec{}, bodies...)
	if got, _, n := readTail(t, r, 1, limit{lines: 100}); n > 1000 || strings.Count(got, "\n") != 100 {
		t.Errorf("read %d events for %d lines", n, strings.Count(got, "\n"))
	}
}

// What retention has removed counts in the size, and the content begins with a line.
func TestTailOfARecordWithoutItsBeginning(t *testing.T) {
	r := surfacetest.NewRecord("old", process.Spec{}, surfacetest.Out("one\ntw"), surfacetest.Out("o\nthree\n"), surfacetest.Out("four"))
	for first, want := range map[process.Seq]string{1: "one\ntwo\nthree\nfour", 4: "three\nfour", 5: "", 6: ""} {
		got, total, _ := readTail(t, r, first, limit{lines: 100})
		if got != want || first < 6 && total != uint64(len(merged(r))) {
			t.Errorf("from event %d: %q of %d bytes, want %q", first, got, total, want)
		}
	}
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\nc"), uint8(3), uint8(2), true)
	f.Fuzz(func(t *testing.T, log []byte, size, n uint8, lines bool) {
		var bodies []process.Body
		for rest := log; len(rest) > 0; {
			n := min(len(rest), int(size)%9+1)
			bodies, rest = append(bodies, process.Wrote{Stream: process.Stdout + process.Stream(len(rest)%2), Data: bytes.Clone(rest[:n])}), rest[n:]
		}
		lim := limit{bytes: int(n) + 1}
		if lines {
			lim = limit{lines: int(n) + 1}
		}
		got, total, _ := readTail(t, surfacetest.NewRecord("fuzz", process.Spec{}, bodies...), 1, lim)
		if want := wantTail(string(log), lim); got != want || total != uint64(len(log)) {
			t.Errorf("%+v of %q: %q of %d, want %q", lim, log, got, total, want)
		}
	})
}
