package sandbox

import (
	"fmt"
	"slices"
)

// Limit is the name of a limit of a sandbox, in hosts' leases and in records.
type Limit string

// The limits. A driver enforces a limit if it applies to the sandbox as a whole.
const (
	LimitCPU    Limit = "cpu"
	LimitMemory Limit = "memory"
	LimitDisk   Limit = "disk"
	LimitPIDs   Limit = "pids"
)

// AllLimits returns every limit.
func AllLimits() []Limit { return []Limit{LimitCPU, LimitMemory, LimitDisk, LimitPIDs} }

// Limits returns the limits set in r, demanded or by default.
func (r *Requested) Limits() []Limit {
	var all []Limit
	for _, l := range []struct {
		limit Limit
		value uint32
	}{{LimitCPU, r.CPUMilli}, {LimitMemory, r.MemoryMiB}, {LimitDisk, r.DiskMiB}, {LimitPIDs, r.PIDs}} {
		if l.value > 0 {
			all = append(all, l.limit)
		}
	}
	return all
}

// Missing returns the limits in want but not in has, in the order of want.
func Missing(want, has []Limit) []Limit {
	return slices.DeleteFunc(slices.Clone(want), func(l Limit) bool { return slices.Contains(has, l) })
}

// Warnings returns a sentence for each limit of the sandbox that its driver does not
// enforce.
func (s *State) Warnings() []string {
	r := &s.Request
	var all []string
	for _, l := range s.Unenforced {
		value := map[Limit]string{
			LimitCPU:    fmt.Sprintf("%g CPUs", float64(r.CPUMilli)/1000),
			LimitMemory: fmt.Sprintf("%d MiB", r.MemoryMiB),
			LimitDisk:   fmt.Sprintf("%d MiB", r.DiskMiB),
			LimitPIDs:   fmt.Sprintf("%d processes", r.PIDs),
		}[l]
		all = append(all, fmt.Sprintf("the %s limit of %s is not enforced: driver %s cannot enforce it on host %s", l, value, s.Driver, s.Host))
	}
	return all
}
