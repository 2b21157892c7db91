package limits

import (
	"math"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// Default are the limits of a sandbox whose request sets none; 0: unlimited.
type Default struct {
	CPUs     float64
	MemoryMB uint32
	DiskMB   uint32
	PIDs     uint32
}

// Body is the limits in a create request. The first two are named as in E2B's
// templates; the others are not part of E2B's API.
type Body struct {
	CPUCount   *float64 `json:"cpuCount"`
	MemoryMB   *int64   `json:"memoryMB"`
	DiskSizeMB *int64   `json:"diskSizeMB"`
	PIDs       *int64   `json:"pids"`
	Isolation  string   `json:"isolation"`
}

// Ranges of limits. With less than the minimum, the shim cannot run.
const (
	MinCPUs, MaxCPUs     = 0.01, 1024
	MinMemory, MaxMemory = 16, 16 << 20 // MiB
	minDisk, maxDisk     = 1, 1 << 30   // MiB
	MinPIDs, MaxPIDs     = 16, 1 << 22
)

// Apply sets the requested limits, or else the defaults, in req where they are unset. A
// requested limit is mandatory: the host must enforce it.
func (b *Body) Apply(req *sandbox.Requested, def Default) error {
	cpus := def.CPUs
	switch {
	case b.CPUCount == nil && req.CPUMilli > 0:
		cpus = float64(req.CPUMilli) / 1000
	case b.CPUCount != nil:
		if cpus = *b.CPUCount; !(cpus >= MinCPUs && cpus <= MaxCPUs) {
			return wire.Invalid("cpuCount must be between %v and %v", MinCPUs, MaxCPUs)
		}
	}
	req.CPUMilli = uint32(math.Round(cpus * 1000))
	if b.CPUCount != nil {
		req.Demanded = append(req.Demanded, sandbox.LimitCPU)
	}
	for _, l := range []struct {
		name        string
		limit       sandbox.Limit
		value       *int64
		least, most int64
		def         uint32
		to          *uint32
	}{
		{"memoryMB", sandbox.LimitMemory, b.MemoryMB, MinMemory, MaxMemory, def.MemoryMB, &req.MemoryMiB},
		{"diskSizeMB", sandbox.LimitDisk, b.DiskSizeMB, minDisk, maxDisk, def.DiskMB, &req.DiskMiB},
		{"pids", sandbox.LimitPIDs, b.PIDs, MinPIDs, MaxPIDs, def.PIDs, &req.PIDs},
	} {
		switch {
		case l.value == nil && *l.to == 0:
			*l.to = l.def
		case l.value == nil:
		case *l.value < l.least || *l.value > l.most:
			return wire.Invalid("%s must be between %d and %d", l.name, l.least, l.most)
		default:
			*l.to = uint32(*l.value)
			req.Demanded = append(req.Demanded, l.limit)
		}
	}
	return b.isolate(req)
}

// isolationKey is the metadata key that requires isolation like the field of the body: E2B's
// SDKs do not send unknown fields.
const isolationKey = "millrace.isolation"

// isolate sets the required isolation in req: the stronger one of the two.
func (b *Body) isolate(req *sandbox.Requested) error {
	inBody, err := sandbox.ParseIsolation(b.Isolation)
	if err != nil {
		return err
	}
	if req.Isolation, err = sandbox.ParseIsolation(req.Metadata[isolationKey]); err != nil {
		return err
	}
	if inBody.AtLeast(req.Isolation) {
		req.Isolation = inBody
	}
	return nil
}
