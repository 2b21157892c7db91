package catalog_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
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
	srv, err := natsd.Start(natsd.Config{Dir: filepath.Join(dir, "nats")})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Stop()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	log, err := events.Open(ctx, events.Config{InProcess: srv, MasterKey: eventstest.MasterKey})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	recordCommands(b, log, count)
}
