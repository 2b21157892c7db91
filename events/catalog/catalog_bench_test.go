package catalog_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/record"
	"github.com/millrace/millrace/events/sandbox"
)

// BenchmarkCatalog measures what the commands on record cost a service at its start: the
// time until the server accepts clients and until the view has caught up, and the memory of
// both. Run it with -benchtime 1x.
func BenchmarkCatalog(b *testing.B) {
	for _, count := range []int{10_000, 200_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			srv := eventstest.Start(b)
			log := eventstest.Open(b, srv)
			recordCommands(b, log, count)
			log.Close()
			for b.Loop() {
				srv.Stop()
				empty := heap()
				begun := time.Now()
				srv.Resume()
				served := time.Now()
				log := eventstest.Open(b, srv)
				opened := time.Now()
				view := eventstest.View(b, log)
				done := time.Now()
				b.ReportMetric(served.Sub(begun).Seconds()*1000, "server-ms")
				b.ReportMetric(opened.Sub(served).Seconds()*1000, "streams-ms")
				b.ReportMetric(done.Sub(opened).Seconds()*1000, "view-ms")
				full, collected := heap(), time.Now()
				runtime.GC()
				b.ReportMetric(time.Since(collected).Seconds()*1000, "collection-ms")
				b.ReportMetric(float64(full-empty)/float64(count), "B/command")
				b.ReportMetric(0, "ns/op")
				runtime.KeepAlive(view)
			}
		})
	}
}

// heap returns the bytes of live heap memory.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// benchHost is the host of the commands: that of `millrace up`.
const benchHost = "local"

// recordCommands stores count commands, a hundred per sandbox that has ended.
func recordCommands(b *testing.B, log *events.Log, count int) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(64)
	for range count / 100 {
		sbx := sandbox.NewID()
		g.Go(func() error {
			whole := []sandbox.Body{sandbox.Requested{}, sandbox.Placed{Host: benchHost, Epoch: 1}, sandbox.Running{}, sandbox.Lost{}}
			if _, err := log.AppendSandbox(b.Context(), "default", sbx, 0, 1, whole...); err != nil {
				return err
			}
			for range 100 {
				if err := runCommand(b, log, process.NewID(sbx)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// command stores a command that printed a line and ended.
func runCommand(b *testing.B, log *events.Log, id process.ID) error {
	now, code := time.Now(), int32(0)
	spec := process.Spec{Cmd: "/bin/sh", Args: []string{"-c", "echo hello"}, Cwd: "/home/user", User: "user"}
	sum := process.Summary{ID: id, Tenant: "default", Host: benchHost, Epoch: 1, Spec: spec}
	rev, err := log.PutSummary(b.Context(), &sum, 0)
	if err != nil {
		return err
	}
	w := log.Writer(record.Ref{Host: benchHost, ID: id}, 1)
	exit := process.Exit{Cause: process.CauseExited, Code: &code}
	for _, evs := range [][]process.Event{
		{{Seq: 1, Time: now, Body: process.Accepted{Spec: spec, Tenant: "default"}}},
		{{Seq: 2, Time: now, Body: process.Started{PID: 12}}, {Seq: 3, Time: now, Body: process.Wrote{Stream: process.Stdout, Data: []byte("hello\n")}}},
		{{Seq: 4, Time: now, Body: process.Exited{Exit: exit}}, {Seq: 5, Time: now, Body: process.Finished{Exit: exit}}},
	} {
		if err := w.Append(b.Context(), evs); err != nil {
			return err
		}
	}
	sum.PID, sum.Started, sum.Ended, sum.Exit, sum.Last = 12, now, now, &exit, 5
	_, err = log.PutSummary(b.Context(), &sum, rev)
	return err
}
