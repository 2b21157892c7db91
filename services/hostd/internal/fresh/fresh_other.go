//go:build !linux

package fresh

import "time"

// MaxSeed is how many random bytes are taken.
const MaxSeed = 64

// Kernel is for Linux.
func Kernel(time.Time, []byte) {}

// Forward is for Linux.
func Forward(time.Time) {}
