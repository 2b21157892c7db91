//go:build !linux

package live

// OnThread calls f. Elsewhere than on Linux a thread has no working directory of
// its own: who starts a child names the directory.
func OnThread(_ string, f func() error) error { return f() }
