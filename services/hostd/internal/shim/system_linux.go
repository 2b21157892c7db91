package shim

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeInherited sets close-on-exec on all inherited descriptors from first on.
func closeInherited(first uint) {
	unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) //nolint:errcheck // drivers on older kernels pass no other descriptors
}
