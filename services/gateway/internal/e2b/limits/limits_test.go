package limits

import (
	"testing"

	"github.com/millrace/millrace/events/sandbox"
)

func TestIsolationIsDemanded(t *testing.T) {
	for _, tt := range []struct {
		body, metadata string
		want           sandbox.Isolation
		ok             bool
	}{
		{"", "", "", true},
		{"kernel", "", "kernel", true},
		{"", "kernel", "kernel", true},
		{"process", "machine", "machine", true},
		{"machine", "process", "machine", true},
		{"none", "none", "none", true},
		{"", "fortress", "", false},
		{"process", "Kernel", "", false},
		{"vm", "kernel", "", false},
	} {
		req := sandbox.Requested{Metadata: map[string]string{isolationKey: tt.metadata}}
		if err := (&Body{Isolation: tt.body}).Apply(&req, Default{}); (err == nil) != tt.ok || tt.ok && req.Isolation != tt.want {
			t.Errorf("%q in the body and %q in the metadata: %q, %v; want %q, ok %v", tt.body, tt.metadata, req.Isolation, err, tt.want, tt.ok)
		}
	}
}

func TestLimitsDefault(t *testing.T) {
	def := Default{CPUs: 0.5, MemoryMB: 128, DiskMB: 10, PIDs: 64}
	one, two := 2.0, int64(256)
	tests := []struct {
		name string
		body Body
		was  sandbox.Requested // limits of the snapshot
		want sandbox.Requested
	}{
		{"without limits, the defaults", Body{}, sandbox.Requested{}, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 500, MemoryMiB: 128, DiskMiB: 10, PIDs: 64}}},
		{"limits of the request override the defaults", Body{CPUCount: &one, MemoryMB: &two}, sandbox.Requested{}, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 2000, MemoryMiB: 256, DiskMiB: 10, PIDs: 64}}},
		{"a snapshot's win over the defaults", Body{}, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 250, MemoryMiB: 32}}, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 250, MemoryMiB: 32, DiskMiB: 10, PIDs: 64}}},
		{"and limits of the request override those", Body{CPUCount: &one}, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 250}}, sandbox.Requested{Resources: sandbox.Resources{CPUMilli: 2000, MemoryMiB: 128, DiskMiB: 10, PIDs: 64}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.was
			err := tt.body.Apply(&got, def)
			if err != nil || got.CPUMilli != tt.want.CPUMilli || got.MemoryMiB != tt.want.MemoryMiB || got.DiskMiB != tt.want.DiskMiB || got.PIDs != tt.want.PIDs {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}
