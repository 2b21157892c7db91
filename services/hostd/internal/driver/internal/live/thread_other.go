//go:build !linux

package live

// OnThread calls f. Only on Linux can a thread have its own working directory:
// elsewhere f passes the directory to the child that it starts.
func OnThread(_ string, f func() error) error { return f() }
