//go:build !linux

package shim

import (
	"errors"
	"net"
)

// listenOther is supported on Linux only.
func listenOther(uintptr) (net.Listener, error) { return nil, errors.ErrUnsupported }
