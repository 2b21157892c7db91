//go:build !linux

package shim

import (
	"errors"
	"net"
)

// listenRaw is supported on Linux only.
func listenRaw(uintptr) (net.Listener, error) { return nil, errors.ErrUnsupported }
