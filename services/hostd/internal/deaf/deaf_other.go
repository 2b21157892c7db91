//go:build !linux || !(amd64 || arm64)

package deaf

// Install does nothing: on other systems only the host can signal the caller.
func Install() error { return nil }
