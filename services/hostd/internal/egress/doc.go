// Package egress is the egress proxy of sandboxes: it serves HTTP (CONNECT and
// plain requests) and SOCKS5 on the streams of a sandbox's shim. It resolves names and
// enforces the sandbox's network policy.
//
// # What is checked
// The address that is dialed, after its name was resolved, and no other: it is
// not resolved again. Every connection is checked, also each request of a plain
// HTTP client, and open connections are checked again when the policy changes.
//
// # What is always refused
// Addresses that are not public: private, loopback, link-local, multicast,
// reserved and documentation ranges of both families, IPv6 ranges that embed an
// IPv4 address, the host's own addresses, and those at which clouds serve
// their metadata. An operator may allow prefixes of them; link-local and
// metadata addresses only one by one.
//
// # What is transformed
// Requests to the domains of a sandbox's transforms, and no others: for those the
// proxy is the server, also of TLS, with a certificate of the host's own authority,
// and a client of the real one, whose certificate it verifies. Only HTTP is possible
// then. The values of headers are sent to no other host.
//
// # Limitations
// A server at a public address may forward the data that it receives.
// Other contents of TLS connections are not inspected.
package egress
