package main

import (
	"net"
	"strconv"
)

// localDomain returns the domain of sandboxes' host names for a gateway that clients on
// this machine reach at an address; empty if localhost does not lead there. Without a
// domain, SDKs form host names of e2b.app, and send what is meant for a sandbox to others.
//
// Names below localhost need no DNS: browsers, curl, systemd-resolved and nss-myhostname
// resolve them to this machine.
func localDomain(at net.Addr) string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() && !tcp.IP.Equal(net.IPv4(127, 0, 0, 1)) && !tcp.IP.Equal(net.IPv6loopback) {
		return ""
	}
	return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
}
