package hostd

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// BenchmarkCreate measures from the request for a sandbox to the end of its first command,
// through the log and without a gateway: one after the other, one each 200 ms, one each second,
// and a hundred at once; with two warm instances if the driver is slow, and without. Run it with
// -benchtime 1x.
func BenchmarkCreate(b *testing.B) {
	for _, warm := range []int{0, 2} {
		for _, m := range []struct {
			name  string
			count int
			every time.Duration // 0: at once; negative: one after the other
		}{{"sequential", 20, -1}, {"staggered", 20, 200 * time.Millisecond}, {"paced", 10, time.Second}, {"burst", 100, 0}} {
			b.Run(fmt.Sprintf("%s/warm=%d", m.name, warm), func(b *testing.B) {
				r := newRig(b)
				r.cfg.Warm, r.cfg.Shim = warm, smallShim(b)
				r.begin()
				r.awaitLease(0)
				r.firstCommand(b)         // the first create has the pool filled
				<-time.After(time.Second) // time for that
				for b.Loop() {
					r.creates(b, m.count, m.every)
				}
			})
		}
	}
}

// smallShim returns the shim for the sandboxes: the test binary would take ten times as long.
func smallShim(b *testing.B) []string {
	path, err := helperbin.Shim().Build(b.Context(), slog.Info)
	if err != nil {
		b.Fatal(err)
	}
	return []string{path}
}

// creates creates sandboxes and reports how long each took.
func (r *rig) creates(b *testing.B, count int, every time.Duration) {
	took := make([]time.Duration, count)
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range took {
		if every < 0 {
			took[i] = r.firstCommand(b)
			continue
		}
		wg.Go(func() { took[i] = r.firstCommand(b) })
		<-time.After(every)
	}
	wg.Wait()
	all := time.Since(begun)
	slices.Sort(took)
	b.ReportMetric(float64(took[count/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[count*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(count)/all.Seconds(), "creates/s")
	b.ReportMetric(0, "ns/op")
}

// firstCommand creates a sandbox, runs a command in it and requests its end.
func (r *rig) firstCommand(b *testing.B) time.Duration {
	begun := time.Now()
	id := r.request(sandbox.Requested{Template: "base"})
	r.awaitPhase(id, sandbox.PhaseRunning)
	if rec := r.whole(r.start(id, process.Spec{Cmd: "true"})); describe(rec.end()) != "exited 0" {
		b.Errorf("first command: %s", describe(rec.end()))
	}
	took := time.Since(begun)
	r.stopSandbox(id)
	return took
}
