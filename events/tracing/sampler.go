package tracing

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
)

// Sampler decides which spans are exported. The zero value exports none.
type Sampler struct {
	parent bool   // the span of the request decides if there is one
	bound  uint64 // of the last 63 bits of a trace's id: those below it are exported
}

// FlagSampled is the flag of a trace whose spans are exported.
const FlagSampled = 1

// always is a bound above all ids.
const always = 1 << 63

// ParseSampler returns the sampler with a name and an argument of OTEL_TRACES_SAMPLER and
// OTEL_TRACES_SAMPLER_ARG. Empty: parentbased_always_on, and 1. It returns Invalid for others.
func ParseSampler(name, arg string) (Sampler, error) {
	if name == "" {
		name = "parentbased_always_on"
	}
	base, parent := strings.CutPrefix(name, "parentbased_")
	s := Sampler{parent: parent}
	switch base {
	case "always_on":
		s.bound = always
	case "always_off":
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return Sampler{}, kind.Newf(kind.Invalid, "parse sampler", "", "OTEL_TRACES_SAMPLER_ARG: %.64q must be a number from 0 to 1", arg)
			}
		}
		s.bound = uint64(ratio * always)
	default:
		return Sampler{}, kind.Newf(kind.Invalid, "parse sampler", "", "OTEL_TRACES_SAMPLER: %.64q must be always_on, always_off or traceidratio, or one of them after parentbased_", name)
	}
	return s, nil
}

// Samples reports whether the span of a process is exported. A nil trace: its start belongs to none.
func (s Sampler) Samples(id process.ID, t *process.Trace) bool {
	if s.parent && t != nil {
		return t.Flags&FlagSampled != 0
	}
	trace := process.RootOf(id)
	if t != nil {
		trace = t.ID
	}
	return binary.BigEndian.Uint64(trace[8:])>>1 < s.bound
}
