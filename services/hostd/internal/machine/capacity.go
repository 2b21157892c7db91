package machine

// Expected resources per sandbox. An idle one takes 3 to 67 MiB, depending on the driver, and
// most sandboxes wait most of the time.
const (
	// MemoryPerSandbox, SandboxesPerCPU and ProcessesPerSandbox determine
	// DefaultCapacity.
	MemoryPerSandbox    = 64 << 20 // bytes
	SandboxesPerCPU     = 128
	ProcessesPerSandbox = 64 // a gVisor sandbox has some 40 threads

	leastCapacity = 1
)

// capacityOf returns how many sandboxes a machine can have: as many as its memory, its CPUs and
// its process limit allow. A resource of 0 is unknown and allows any number.
func capacityOf(memory uint64, cpus uint32, processes uint64) int {
	n := uint64(cpus) * SandboxesPerCPU
	if memory > 0 {
		n = min(n, memory/MemoryPerSandbox)
	}
	if processes > 0 {
		n = min(n, processes/ProcessesPerSandbox)
	}
	return int(max(n, leastCapacity))
}

// DefaultCapacity returns the number of sandboxes that this machine can have.
func DefaultCapacity() int {
	total, _ := Memory()
	return capacityOf(total, CPUs(), processBound())
}
