//go:build !linux

package shim

import (
	"errors"
	"net"
)

// listenOther is for Linux.
func listenOther(uintptr) (net.Listener, error) { return nil, errors.ErrUnsupported }
