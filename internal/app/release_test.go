package app

import (
	"runtime"
	"sync"
	"testing"
)

func TestMemoryIsReturnedWhenTheProgramIsQuiet(t *testing.T) {
	const mib = 1 << 20
	r := releaser{floor: 60 * mib}
	var allocated uint64
	for i, tt := range []struct {
		held, more uint64 // MiB held, and allocated since the last sample
		samples    int
		want       bool // at the last sample
	}{
		{60, 0, 100, false},   // nothing to return
		{550, 50, 100, false}, // a load
		{550, 0, quietSamples - 1, false},
		{550, 2, 1, false}, // not quiet
		{550, 0, quietSamples - 1, false},
		{550, 0, 1, true},
		{550, 0, pauseSamples - 1, false}, // a load at once after that
		{90, 0, 50, false},                // it keeps more than before
		{121, 0, 1, false},
		{123, 0, 1, true},
		{40, 0, 20, false},
		{73, 0, 1, true}, // less than it had to keep
	} {
		for n := range tt.samples {
			allocated += tt.more * mib
			got := r.due(memory{held: tt.held * mib, allocated: allocated})
			if want := tt.want && n == tt.samples-1; got != want {
				t.Fatalf("%d, sample %d: %v", i, n, got)
			}
			if got && i < 7 {
				r.freed(memory{held: 90 * mib, allocated: allocated})
			}
		}
	}
}

// What a start read is returned soon; later, only a longer quiet counts.
func TestMemoryIsReturnedAfterTheStart(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name        string
		busy, quiet int // samples
		want        bool
	}{
		{"soon after the start", 2, startQuiet, true},
		{"not quiet", 2, startQuiet - 1, false},
		{"a load after the start", startSamples, startQuiet, false},
		{"longer after that", startSamples, quietSamples, true},
	} {
		r := releaser{floor: 10 * mib, starting: startSamples}
		var allocated uint64
		got := false
		for n := range tt.busy + tt.quiet {
			if n < tt.busy {
				allocated += 100 * mib
			}
			got = r.due(memory{held: 300 * mib, allocated: allocated})
		}
		if got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// What a load leaves, in pools too, is returned.
func TestFreedMemoryIsReturned(t *testing.T) {
	freeMemory() // what earlier tests left
	before := readMemory()
	var load [][]byte
	for range 32 {
		load = append(load, make([]byte, 8<<20))
	}
	if held := readMemory().held; held < before.held+200<<20 {
		t.Fatalf("the load holds %d bytes, %d before", held, before.held)
	}
	var pool sync.Pool
	for _, b := range load {
		pool.Put(&b)
	}
	load = nil
	freeMemory()
	if held := readMemory().held; held > before.held+50<<20 {
		t.Errorf("%d bytes held, %d before the load", held, before.held)
	}
	runtime.KeepAlive(&pool)
	runtime.KeepAlive(load)
}
