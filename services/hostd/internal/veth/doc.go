// Package veth gives sandboxes an interface of their own, with access to all of IPv4 that
// the host permits: for programs that do not support proxies, for UDP and for
// ping. It requires Linux, root, and the program nft.
//
// # What is permitted
// Packets of a sandbox to public addresses, with the host's address (masquerade), and
// the replies. Not: packets to the host itself, to other sandboxes, to addresses that are not
// public or serve metadata (Config.Steps), new connections to a sandbox, packets with
// another sandbox's source address, and IPv6. The rules are one nftables table, in
// force before the first interface exists; they are the same for all sandboxes, so that
// only sandboxes whose own policy allows everything may get an interface (the caller checks).
// A sandbox may have a sixteenth of the connections that the kernel tracks: when all are
// used, new connections fail for every sandbox and for the host.
//
// # State
// The kernel is the journal: an interface's alias is the sandbox's id, and it is removed
// with the sandbox's network namespace, even if processes are killed. Sweep removes the
// interfaces of unknown sandboxes, Remove all. The table exists while there are sandboxes,
// with or without a host daemon. The kernel counts an interface's traffic, also
// meanwhile. If another program removes the table, Keep restores it.
//
// # Side effect
// Forwarding is enabled for the whole host.
package veth
