//go:build freebsd || darwin

package shim

import "golang.org/x/sys/unix"

// closeInherited sets close-on-exec on all inherited descriptors from first on.
func closeInherited(first uint) {
	for fd := int(first); fd < mostInherited; fd++ {
		unix.CloseOnExec(fd)
	}
}

// mostInherited is more than any driver passes.
const mostInherited = 64
