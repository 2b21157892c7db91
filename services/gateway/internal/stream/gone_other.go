//go:build !linux

package stream

import "net"

// Gone is the same as LeftOn on this system.
func Gone(conn net.Conn) bool { return LeftOn(conn) }
