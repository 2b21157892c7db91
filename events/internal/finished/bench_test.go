package finished

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// BenchmarkAdd adds a chunk of processes of 64 sandboxes that ran at the same time, as a view does
// when it starts from a snapshot.
func BenchmarkAdd(b *testing.B) {
	const chunks = 32
	from := NewSet(MaxSlots)
	sandboxes := make([]sandbox.ID, 64)
	for i := range chunks * MaxSlots {
		sbx := &sandboxes[i%len(sandboxes)]
		if i%(100*len(sandboxes)) < len(sandboxes) {
			*sbx = sandbox.NewID()
		}
		at := time.Unix(1000, int64(i)*1000)
		from.Put(&process.Summary{ID: process.NewID(*sbx), Tenant: "default", Started: at, Ended: at, Exit: &process.Exit{}}, uint64(i+1))
	}
	all := from.Chunks()
	for b.Loop() {
		to := NewSet(MaxSlots)
		for _, c := range all {
			to.Add(c)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunks*MaxSlots), "ns/process")
}
