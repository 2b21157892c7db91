//go:build linux

package veth

import (
	"fmt"
	"strings"
)

// conns is the set that counts connections, by interface.
const conns = "conns"

// rules returns nft's script of the table. It replaces the rules of an existing table and
// keeps its counters.
func (c *Config) rules() string {
	var b strings.Builder
	table, ours := "inet "+c.table(), fmt.Sprintf("%q", c.prefix()+"*")
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("table %s {}", table) // so that there is a table to flush
	line("flush table %s", table)
	line("table %s {", table)
	line("set %s { type ifname; size %d; flags dynamic; }", conns, maxSandboxes)
	line("chain host { type filter hook input priority -10; policy accept; iifname %s drop; }", ours)
	line("chain pass { type filter hook forward priority -10; policy accept;")
	line("oifname %s ct state established,related accept", ours)
	line("oifname %s drop", ours)
	line("iifname != %s accept", ours)
	line("meta nfproto != ipv4 drop")
	line("ip saddr != %s drop", c.Range)
	line("ct state new add @%s { iifname ct count over %d } drop", conns, c.conns)
	for _, s := range c.Steps {
		var nets []string
		for _, n := range s.Nets {
			if n.Addr().Is4() {
				nets = append(nets, n.Masked().String())
			}
		}
		verdict := "drop"
		if s.Allow {
			verdict = "accept"
		}
		for _, n := range nets { // one set each: ranges in a set must not overlap
			line("ip daddr %s %s", n, verdict)
		}
	}
	line("}")
	line("chain leave { type nat hook postrouting priority srcnat; policy accept; ip saddr %s oifname != %s masquerade; }", c.Range, ours)
	line("}")
	return b.String()
}
