//go:build !linux

package usage

// deletedFiles returns 0: this system does not list the files that processes have open.
func deletedFiles(string, []int, func() error) (uint64, error) { return 0, nil }
