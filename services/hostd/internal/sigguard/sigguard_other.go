//go:build !linux || !(amd64 || arm64)

package sigguard

// Install does nothing: on other systems only the host can signal the caller.
func Install() error { return nil }
