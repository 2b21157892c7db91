// Package egress is a sandbox's way out: a proxy that speaks HTTP (CONNECT and
// plain requests) and SOCKS5 over the streams of its shim. Names are resolved
// here, and here it is judged what may be reached.
//
// # What is judged
// The address that is dialed, after its name was resolved, and no other: it is
// not resolved again. Every connection is judged, also each request of a plain
// HTTP client, and those that are open are judged again when the policy changes.
//
// # What is refused whatever a sandbox's policy says
// Addresses that are not public: private, loopback, link-local, multicast,
// reserved and documentation ranges of both families, IPv6 ranges that carry an
// IPv4 address within, the host's own addresses, and those at which clouds serve
// their metadata. An operator may allow prefixes of them; of link-local and
// metadata addresses only single ones, each by its own.
//
// # What is transformed
// Requests to the domains of a sandbox's transforms, and no others: for those the
// proxy is the server, also of TLS, by a certificate of the host's own authority,
// and a client of the real one, whose certificate is checked. Only HTTP is spoken
// then. What a header is set to is told to nobody else.
//
// # What cannot be told here
// Who is behind a public address: a server out there may pass on what it is sent.
// What else is said within TLS is not read.
package egress
