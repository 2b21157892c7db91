package machine

import "testing"

func TestCapacity(t *testing.T) {
	const gib = 1 << 30
	tests := []struct {
		name      string
		memory    uint64
		cpus      uint32
		processes uint64
		want      int
	}{
		{"memory is short", 4 * gib, 8, 1 << 22, 64},
		{"CPUs are short", 64 * gib, 2, 1 << 22, 256},
		{"processes are short", 64 * gib, 8, 32768, 512},
		{"only the CPUs are known", 0, 2, 0, 256},
		{"a small machine has capacity for one", 16 << 20, 1, 10, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := capacityOf(tt.memory, tt.cpus, tt.processes); got != tt.want {
				t.Errorf("capacity %d, want %d", got, tt.want)
			}
		})
	}
	if n := DefaultCapacity(); n < 1 {
		t.Errorf("DefaultCapacity() = %d, want at least 1", n)
	}
}
