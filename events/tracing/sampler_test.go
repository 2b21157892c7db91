package tracing_test

import (
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/tracing"
)

func TestSamplersFollowTheirNames(t *testing.T) {
	const id = process.ID("01arz3ndektsv4rrffq69g5fav-i1")
	low, high := process.TraceID{0: 1, 8: 0x10}, process.TraceID{0: 1, 8: 0xf0}
	with := func(id process.TraceID, flags uint8) *process.Trace {
		return &process.Trace{ID: id, Parent: process.SpanID{1}, Flags: flags}
	}
	tests := []struct {
		name, arg string
		trace     *process.Trace
		want      bool
	}{
		{"", "", nil, true},
		{"", "", with(low, 1), true},
		{"", "", with(low, 0), false},
		{"", "", with(low, 2), false},
		{"always_on", "", with(low, 0), true},
		{"always_off", "", with(low, 1), false},
		{"parentbased_always_off", "", nil, false},
		{"parentbased_always_off", "", with(high, 1), true},
		{"traceidratio", "0.5", with(low, 0), true},
		{"traceidratio", "0.5", with(high, 1), false},
		{"traceidratio", "1", with(high, 0), true},
		{"traceidratio", "", with(high, 0), true},
		{"traceidratio", "0", with(process.TraceID{0: 1}, 1), false},
		{"parentbased_traceidratio", "0", with(high, 1), true},
		{"parentbased_traceidratio", "0", nil, false},
	}
	for _, tt := range tests {
		s, err := tracing.ParseSampler(tt.name, tt.arg)
		if got := s.Samples(id, tt.trace); err != nil || got != tt.want {
			t.Errorf("%s %s of %+v: got %v, %v; want %v", tt.name, tt.arg, tt.trace, got, err, tt.want)
		}
	}
}

func TestUnknownSamplersAreInvalid(t *testing.T) {
	for name, arg := range map[string]string{"jaeger_remote": "", "parentbased_": "", "traceidratio": "2", "parentbased_traceidratio": "NaN", "always": "x"} {
		if s, err := tracing.ParseSampler(name, arg); !kind.Is(err, kind.Invalid) || s != (tracing.Sampler{}) {
			t.Errorf("%s %s: got %v, %v; want Invalid", name, arg, s, err)
		}
	}
}

// A ratio samples about that part of the traces that begin with a process.
func TestRatioSamplesThatPartOfTheTraces(t *testing.T) {
	s, err := tracing.ParseSampler("traceidratio", "0.25")
	if err != nil {
		t.Fatal(err)
	}
	const all = 10_000
	n := 0
	for range all {
		if s.Samples(process.NewID("i1"), nil) {
			n++
		}
	}
	if n < all/5 || n > all*3/10 {
		t.Errorf("sampled %d of %d, want about a quarter", n, all)
	}
}
