package children

import "syscall"

// becomeReaper does nothing: orphans go to launchd, and processes that left the shim's tree
// outlive the sandbox.
func becomeReaper(bool) error { return nil }

// SetDeathSignal does nothing: there is no such request.
func SetDeathSignal(*syscall.SysProcAttr) {}
