package catalog_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/natsd"
)

// BenchmarkFill writes the commands on record that a start is measured with into the data
// directory MILLRACE_BENCH_DATA of `millrace up`: MILLRACE_BENCH_COMMANDS of them, 300,000 by
// default. Run it with -benchtime 1x.
func BenchmarkFill(b *testing.B) {
	dir := os.Getenv("MILLRACE_BENCH_DATA")
	if dir == "" {
		b.Skip("MILLRACE_BENCH_DATA is not set")
	}
	count, err := strconv.Atoi(os.Getenv("MILLRACE_BENCH_COMMANDS"))
	if err != nil {
		count = 300_000
	}
	log := benchLog(b, dir)
	recordCommands(b, log, count)
}

// benchLog opens the log of a data directory.
func benchLog(b *testing.B, dir string) *events.Log {
	b.Helper()
	srv, err := natsd.Start(natsd.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(srv.Stop)
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	log, err := events.Open(ctx, events.Config{InProcess: srv, MasterKey: eventstest.MasterKey})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(log.Close)
	return log
}

// BenchmarkStart measures how long a view needs to start on the data directory that BenchmarkFill
// wrote, together with its server, and the CPU time of both: at first without a snapshot, unless
// there is one, then with it. Run it with -benchtime 1x.
func BenchmarkStart(b *testing.B) {
	dir := os.Getenv("MILLRACE_BENCH_DATA")
	if dir == "" {
		b.Skip("MILLRACE_BENCH_DATA is not set")
	}
	log := benchLog(b, dir)
	for _, name := range []string{"first", "snapshot"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				begun, used := time.Now(), cpuTime(b)
				view := eventstest.View(b, log)
				b.ReportMetric(time.Since(begun).Seconds()*1000, "ms")
				b.ReportMetric((cpuTime(b)-used).Seconds()*1000, "cpu-ms")
				b.ReportMetric(0, "ns/op")
				if err := view.SweepCatalog(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
