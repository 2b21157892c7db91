// Package reseed updates the kernel of a VM that was restored from memory: it reseeds the
// random number generator, which other VMs restored from the same memory share, and sets
// the clock, also after a pause.
package reseed
