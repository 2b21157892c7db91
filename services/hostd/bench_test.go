package hostd

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
)

// benchRig returns a host with one sandbox.
func benchRig(b *testing.B) (*rig, func(process.Spec) process.ID) {
	r := newRig(b)
	r.begin()
	r.awaitLease(0)
	sbx := r.sandbox()
	return r, func(spec process.Spec) process.ID { return r.start(sbx, spec) }
}

// BenchmarkTrue measures from the start command to the first event and to the end of `true`.
func BenchmarkTrue(b *testing.B) {
	r, start := benchRig(b)
	var first time.Duration
	for b.Loop() {
		begun := time.Now()
		id := start(process.Spec{Cmd: "/bin/true"})
		seen := false
		r.read(id, func(rec *processRecord) bool {
			if !seen && len(rec.events) >= 2 {
				seen, first = true, first+time.Since(begun)
			}
			return false
		})
	}
	b.ReportMetric(float64(first.Microseconds())/float64(b.N), "us/start")
}

// BenchmarkTrueParallel measures concurrent starts.
func BenchmarkTrueParallel(b *testing.B) {
	r, start := benchRig(b)
	for _, n := range []int{4, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetParallelism(n / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r.whole(start(process.Spec{Cmd: "/bin/true"}))
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "starts/s")
		})
	}
}

// BenchmarkOutput measures one process's output, from its pipe to a reader of the record.
func BenchmarkOutput(b *testing.B) {
	const size = 256 << 20
	r, start := benchRig(b)
	for _, bm := range []struct{ name, script string }{
		{"bulk", "head -c 268435456 /dev/zero"}, // pieces of 4 KiB
		{"blocks", "dd if=/dev/zero bs=64k count=4096 2>/dev/null"},
		{"lines", "yes 'a line of output as programs write it, of some length' | head -c 268435456"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				id := start(sh(bm.script))
				rd := r.log.Read(record.Ref{Host: hostName, ID: id}, 0)
				got := 0
				for {
					batch, err := rd.Next(r.ctx(), time.Second)
					if err != nil {
						break
					}
					for _, e := range batch {
						if w, ok := e.Body.(process.Wrote); ok {
							got += len(w.Data)
						}
					}
				}
				rd.Close()
				if got != size {
					b.Fatalf("%d bytes", got)
				}
			}
		})
	}
}

// BenchmarkEcho measures from a keystroke's command to the terminal's echo at a reader of the
// record.
func BenchmarkEcho(b *testing.B) {
	r, start := benchRig(b)
	id := start(process.Spec{Cmd: "cat", PTY: &process.Size{Cols: 80, Rows: 24}})
	rd := r.log.Read(record.Ref{Host: hostName, ID: id}, 0)
	defer rd.Close()
	ctx := b.Context()
	await := func(done func(process.Body) bool) {
		for {
			batch, err := rd.Next(ctx, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range batch {
				if done(e.Body) {
					return
				}
			}
		}
	}
	await(func(body process.Body) bool { _, ok := body.(process.Started); return ok })
	var times []time.Duration
	for b.Loop() {
		begun := time.Now()
		r.send(id, command.Stdin{Data: []byte("x")})
		await(func(body process.Body) bool { _, ok := body.(process.Wrote); return ok })
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "us/p50")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "us/p99")
}
