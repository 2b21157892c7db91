package app

import "testing"

func TestMemoryLimit(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		meminfo    string
		live, want int64
	}{
		{"MemTotal:       24000000 kB\nMemFree: 1 kB\n", 0, mostMemory},
		{"MemFree: 5 kB\nMemTotal:        4194304 kB\n", 0, gib / 2},
		{"MemTotal:        1000000 kB\n", 0, leastMemory},
		{"", 0, mostMemory},
		{"MemTotal: many\n", 0, mostMemory},
		{"MemTotal: 25165824 kB\n", gib / 2, mostMemory},
		{"MemTotal: 25165824 kB\n", 4 * gib, 6 * gib},
		{"MemTotal: 25165824 kB\n", 20 * gib, 12 * gib}, // at most half of the machine's memory
		{"MemTotal: 4194304 kB\n", gib, gib + gib/2},
	} {
		if got := memoryLimit(memoryOf(tt.meminfo), tt.live); got != tt.want {
			t.Errorf("%q with a live heap of %d: %d, want %d", tt.meminfo, tt.live, got, tt.want)
		}
	}
}
