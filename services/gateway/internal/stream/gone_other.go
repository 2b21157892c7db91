//go:build !linux

package stream

import "net"

// Gone sees as much as LeftOn here.
func Gone(conn net.Conn) bool { return LeftOn(conn) }
