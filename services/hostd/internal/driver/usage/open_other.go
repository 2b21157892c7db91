//go:build !linux

package usage

// nameless is nothing: who else knows what processes have open?
func nameless(string, []int, func() error) (uint64, error) { return 0, nil }
