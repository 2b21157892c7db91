//go:build !linux

package hosttune

// prioritize does nothing: only on Linux do drivers reset the priority for sandboxes.
func prioritize() []Change { return nil }

func service(int) []Setting { return nil }
