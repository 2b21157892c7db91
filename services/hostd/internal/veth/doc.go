// Package veth gives sandboxes an interface of their own, with all of IPv4 behind
// it that the host lets through: for programs that know of no proxy, for UDP and for
// ping. It wants Linux, root, and the program nft.
//
// # What is let through
// What a sandbox sends to public addresses, in the host's name (masquerade), and
// the answers. Not: the host itself, other sandboxes, addresses that are not public
// or serve metadata (Config.Steps), whoever begins a connection to a sandbox, another
// sandbox's address as a sender, and IPv6. The rules are one table of nftables, in
// force before the first interface is; they are the same for all sandboxes, so that
// nobody gets an interface whose own rules say more than "all" (the caller's affair).
// Of the connections that the kernel tracks a sandbox may have a sixteenth at a time:
// where there is no room for more, nobody's are let through, nor the host's own.
//
// # What is left behind
// The kernel is the journal: an interface's alias is the sandbox's id, and it goes
// when the sandbox's network namespace does, whoever is killed. Sweep removes those
// of sandboxes that are not known, Remove all. The table stays while there are sandboxes, with
// or without a host daemon. What goes through an interface is counted by it, and so goes
// on being counted meanwhile. What else removes the table has Keep make it anew.
//
// # What is not done
// Forwarding is switched on for the whole host.
package veth
