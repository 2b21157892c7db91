//go:build !linux

package sudo

import "io"

// Called is supported on Linux only.
func Called([]string) bool { return false }

// Main is supported on Linux only.
func Main([]string, io.Writer, io.Writer) int { return 1 }
