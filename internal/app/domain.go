package app

import (
	"net"
	"strconv"
)

// localDomain returns the domain of sandboxes' host names for a gateway at a local
// address; empty if localhost does not reach it. Without a domain, SDKs use host names
// below e2b.app and would send sandbox traffic to E2B.
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
