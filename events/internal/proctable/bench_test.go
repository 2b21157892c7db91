package proctable

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/millrace/millrace/events/internal/codec"
	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// messages returns the stored entries of processes that ended, a hundred per sandbox.
func messages(b *testing.B, count int) []store.Message {
	b.Helper()
	begun, code := time.Now(), int32(0)
	exit := &process.Exit{Cause: process.CauseExited, Code: &code}
	var all []store.Message
	for i := range count / 100 {
		sbx := sandbox.NewID()
		for j := range 100 {
			at := begun.Add(time.Duration(i*100+j) * time.Millisecond)
			s := process.Summary{
				ID: process.NewID(sbx), Tenant: "default", Host: "host-1", Epoch: 1, PID: uint32(12 + j), Started: at, Ended: at.Add(time.Millisecond), Exit: exit, Last: 5,
				Spec: process.Spec{Cmd: "/bin/bash", Args: []string{"-l", "-c", fmt.Sprint("echo hello ", i)}, Cwd: "/home/user", User: "user"},
			}
			data, err := codec.EncodeSummary(&s)
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, store.Message{Subject: subject(s.Host, s.ID), Seq: uint64(len(all) + 1), Data: data, Time: at})
		}
	}
	return all
}

const finishedCount = 300_000

// BenchmarkFinished measures what a finished process costs a view: the time to apply its entry, and
// its live memory.
func BenchmarkFinished(b *testing.B) {
	all := messages(b, finishedCount)
	for b.Loop() {
		before := live()
		begun := time.Now()
		c := newCatalog()
		for _, m := range all {
			if err := c.Apply(m); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(begun)
		b.ReportMetric(float64(took.Nanoseconds())/finishedCount, "ns/process")
		b.ReportMetric(float64(live()-before)/finishedCount, "B/process")
		b.ReportMetric(0, "ns/op")
		runtime.KeepAlive(c)
	}
	runtime.KeepAlive(all)
}

func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkPage measures pages beside finished processes.
func BenchmarkPage(b *testing.B) {
	c := newCatalog()
	var last process.Summary
	for _, m := range messages(b, finishedCount) {
		if err := c.Apply(m); err != nil {
			b.Fatal(err)
		}
		last, _ = codec.DecodeSummary(m.Data)
	}
	running := process.Summary{ID: process.NewID(last.ID.Sandbox()), Tenant: "default", Host: "h", PID: 7, Started: time.Now()}
	c.put(b, running)
	old := process.ListCursor{At: last.Started.Add(-200 * time.Second).UnixNano(), ID: last.ID}
	for name, q := range map[string]process.Query{
		"newest": {}, "old": {After: old}, "sandbox": {Sandbox: last.ID.Sandbox()}, "active": {Active: true},
		"none": {Keep: func(*process.Summary) bool { return false }},
	} {
		q.Tenant, q.Limit = "default", 100
		if q.Keep == nil {
			q.Keep = every
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c.Page(&q)
			}
		})
	}
	b.Run("listActive", func(b *testing.B) {
		for b.Loop() {
			c.Active(running.ID.Sandbox(), every)
		}
	})
}
