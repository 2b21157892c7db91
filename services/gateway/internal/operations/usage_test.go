package operations_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

func TestUse(t *testing.T) {
	h := newFixture(t)
	st := h.createWith(sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 500, MemoryMiB: 64}})
	at := func(i int) time.Time { return st.Started.Add(time.Duration(i) * time.Second) }
	for i := 1; i <= 4; i++ {
		s := catalog.Sample{Time: at(i), CPU: time.Duration(i) * 100 * time.Millisecond, MemoryBytes: uint64(i), DiskBytes: 7, Processes: 3}
		if err := h.log.PutSample(t.Context(), h.host.Name, st.ID, s); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name         string
		since, until time.Time
		first, n     int // the first sample, in seconds since the start, and how many
	}{
		{"all, from the start on", time.Time{}, time.Time{}, 0, 5},
		{"from the middle on, with the one before", at(3), time.Time{}, 2, 3},
		{"up to the middle", time.Time{}, at(2), 0, 3},
		{"one", at(2), at(2), 1, 2},
		{"no sample", at(60), time.Time{}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := h.Lifecycle.Usage(t.Context(), alice, st.ID, tt.since, tt.until)
			if err != nil || len(u.Samples) != tt.n || tt.n > 0 && !u.Samples[0].Time.Equal(at(tt.first)) {
				t.Errorf("%v: %+v", err, u.Samples)
			}
			if u.CPUs != 0.5 || u.Memory != 64<<20 || u.Disk != 8<<30 { // without a limit: the host's total
				t.Errorf("limits %+v", u)
			}
		})
	}
	_, err := h.Lifecycle.Usage(t.Context(), bob, st.ID, time.Time{}, time.Time{})
	wantKind(t, "another tenant's", err, kind.NotFound)
	all, err := h.Lifecycle.LastUsages(t.Context(), alice, []sandbox.ID{st.ID, sandbox.NewID()})
	if err != nil || len(all) != 1 || all[0].Samples[len(all[0].Samples)-1].CPU != 400*time.Millisecond {
		t.Errorf("%+v, %v", all, err)
	}
}

// A sandbox's samples take bounded space however long it runs.
func TestSamplesAreBounded(t *testing.T) {
	h := newFixture(t)
	id := sandbox.NewID()
	const more = 5
	for i := range catalog.MaxSamples + more {
		if err := h.log.PutSample(t.Context(), h.host.Name, id, catalog.Sample{CPU: time.Duration(i)}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := h.log.Samples(t.Context(), h.host.Name, id, time.Time{})
	if err != nil || len(got) != catalog.MaxSamples || got[0].CPU != more {
		t.Errorf("%d samples from %v, %v", len(got), got[0].CPU, err)
	}
}
