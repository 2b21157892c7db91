package veth

import (
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kernel remembers the connections of a sandbox that has ended. They would count for the
// next sandbox with its addresses, and packets that still arrive on them would reach it: so
// addresses are reused only when their connections are forgotten. That requires a scan of all
// connections of the machine, so it is done for many addresses at once, in the background.

// numbers are the numbers of interfaces, and so of addresses, each with the sequence number of its assignment.
type numbers map[int]uint64

// gone returns the assigned numbers whose interfaces no longer exist; n.mu must be held.
func (n *Net) gone(links map[int]netlink.Link) numbers {
	gone := make(numbers)
	for i, sequence := range n.assigned {
		if links[i] == nil {
			gone[i] = sequence
		}
	}
	return gone
}

// assign records the assignment of a number; n.mu must be held.
func (n *Net) assign(i int) {
	n.sequence++
	n.assigned[i] = n.sequence
}

// clean forgets the connections of interfaces that were removed since the last time.
func (n *Net) clean() {
	n.mu.Lock()
	links, err := n.list()
	if err != nil { // an interface missing from the list may exist
		n.mu.Unlock()
		return
	}
	gone := n.gone(links)
	n.mu.Unlock()
	ended := n.end(gone) // their numbers are not assigned meanwhile, and other assignments do not wait
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(gone, ended)
}

// forget is clean for a caller that waits; n.mu must be held.
func (n *Net) forget(gone numbers) { n.release(gone, n.end(gone)) }

// release makes the numbers available again, also if their connections could not be ended.
func (n *Net) release(gone numbers, err error) {
	if err != nil {
		n.cfg.Log.Warn("connections of earlier sandboxes may still be there", "err", err)
	}
	for i, sequence := range gone {
		if n.assigned[i] == sequence { // otherwise it is assigned again already
			delete(n.assigned, i)
		}
	}
}

// endTries is the number of scans when connections change meanwhile.
const endTries = 3

// end ends the connections of the numbers, except those that were assigned again.
func (n *Net) end(of numbers) (err error) {
	others := n.others()
	of = maps.Clone(of)
	maps.DeleteFunc(of, func(i int, _ uint64) bool { return others[i] })
	if len(of) == 0 {
		return nil
	}
	for range endTries {
		_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, fromNumbers{n, of})
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// fromNumbers matches the connections from the addresses of the numbers.
type fromNumbers struct {
	n  *Net
	at numbers
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (b fromNumbers) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	i, ok := b.n.number(flow.Forward.SrcIP)
	return ok && b.at[i] > 0
}

// number returns the number that an address belongs to.
func (n *Net) number(ip net.IP) (i int, ok bool) {
	v4 := ip.To4()
	if v4 == nil || !n.cfg.Range.Contains(netip.AddrFrom4([4]byte(v4))) {
		return 0, false
	}
	base := n.cfg.Range.Addr().As4()
	return int(binary.BigEndian.Uint32(v4)-binary.BigEndian.Uint32(base[:])) / addrsPerSandbox, true
}
