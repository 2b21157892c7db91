//go:build !linux

package reseed

import "time"

// MaxSeed is the number of seed bytes that are used.
const MaxSeed = 64

// Kernel is supported on Linux only.
func Kernel(time.Time, []byte) {}

// AdvanceClock is supported on Linux only.
func AdvanceClock(time.Time) {}
