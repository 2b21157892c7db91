package usage

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/services/gateway/internal/lifecycle"
)

func TestMetrics(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	u := lifecycle.Usage{CPUs: 1.5, Memory: 100, Disk: 10, Samples: []catalog.Sample{
		{Time: at(10)},
		{Time: at(12), CPU: 3 * time.Second, MemoryBytes: 5, DiskBytes: 6},
		{Time: at(14), CPU: 3 * time.Second},
		{Time: at(14), CPU: 4 * time.Second}, // no time passed
		{Time: at(15), CPU: time.Second},     // the clock went backwards
	}}
	got := Metrics(&u)
	want := []float64{100, 0, 0, 0}
	if len(got) != len(want) {
		t.Fatalf("%d metrics of %d samples", len(got), len(u.Samples))
	}
	for i := range want {
		if got[i].CPUUsedPct != want[i] {
			t.Errorf("metric %d: %v %%, want %v", i, got[i].CPUUsedPct, want[i])
		}
	}
	if m := got[0]; m.CPUCount != 2 || m.MemUsed != 5 || m.MemTotal != 100 || m.DiskUsed != 6 || m.DiskTotal != 10 || m.TimestampUnix != 12 {
		t.Errorf("%+v", m)
	}
	if got := Metrics(&lifecycle.Usage{}); got == nil || len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
