//go:build !linux

package convruntime

// protect and allowLargeEnvironments do nothing here.
func protect() {}

func allowLargeEnvironments() {}
