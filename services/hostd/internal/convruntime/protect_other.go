//go:build !linux

package convruntime

// protect and allowLargeEnvironments do nothing here.
func protect() {}

func inMemory(string) bool { return true }

func allowLargeEnvironments() {}
