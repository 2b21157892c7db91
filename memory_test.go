package main

import "testing"

func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		meminfo string
		want    int64
	}{
		{"MemTotal:       24000000 kB\nMemFree: 1 kB\n", mostMemory},
		{"MemFree: 5 kB\nMemTotal:        4194304 kB\n", 512 << 20},
		{"MemTotal:        1000000 kB\n", leastMemory},
		{"", mostMemory},
		{"MemTotal: many\n", mostMemory},
	} {
		if got := memoryLimit(tt.meminfo); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.meminfo, got, tt.want)
		}
	}
}
