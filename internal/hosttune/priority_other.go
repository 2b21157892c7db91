//go:build !linux

package hosttune

// prioritize is for Linux, where drivers start sandboxes without the priority.
func prioritize() []Change { return nil }

func service(int) []Setting { return nil }
