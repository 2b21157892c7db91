//go:build !linux

package sudo

import "io"

// Called is for Linux.
func Called([]string) bool { return false }

// Main is for Linux.
func Main([]string, io.Writer, io.Writer) int { return 1 }
