//go:build !linux

package httpconn

import "net"

// Gone is the same as LeftOn on this system.
func Gone(conn net.Conn) bool { return LeftOn(conn) }

// disconnected returns false on this system.
func disconnected(net.Conn) bool { return false }
