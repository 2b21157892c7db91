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

// The kernel remembers the connections of a sandbox that has gone. They would count as those
// of who has its addresses next, and what still comes on them would reach it: addresses are
// given away again only when they are forgotten. That takes a look at all connections of the
// machine, so that it is done for many addresses at a time, while nobody waits.

// numbers are those of interfaces, hence of addresses, each with which giving it was.
type numbers map[int]uint64

// gone are those given whose interfaces are not there any more; n.mu is held.
func (n *Net) gone(links map[int]netlink.Link) numbers {
	gone := make(numbers)
	for i, giving := range n.given {
		if links[i] == nil {
			gone[i] = giving
		}
	}
	return gone
}

// give notes that a number is somebody's; n.mu is held.
func (n *Net) give(i int) {
	n.giving++
	n.given[i] = n.giving
}

// clean forgets the connections of those that went since the last time.
func (n *Net) clean() {
	n.mu.Lock()
	links, err := n.look()
	if err != nil { // who is not on the list may be there
		n.mu.Unlock()
		return
	}
	gone := n.gone(links)
	n.mu.Unlock()
	ended := n.end(gone) // nobody gets these meanwhile, and nobody waits for others
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(gone, ended)
}

// forget is clean for who waits; n.mu is held.
func (n *Net) forget(gone numbers) { n.release(gone, n.end(gone)) }

// release has the numbers given away again. Where that is all that can be done, so be it.
func (n *Net) release(gone numbers, err error) {
	if err != nil {
		n.cfg.Log.Warn("connections of earlier sandboxes may still be there", "err", err)
	}
	for i, giving := range gone {
		if n.given[i] == giving { // else it is another's already
			delete(n.given, i)
		}
	}
}

// endTries is how often it is looked when connections come and go meanwhile.
const endTries = 3

// end ends the connections of the numbers, but of those that others have by now.
func (n *Net) end(of numbers) (err error) {
	others := n.others()
	of = maps.Clone(of)
	maps.DeleteFunc(of, func(i int, _ uint64) bool { return others[i] })
	if len(of) == 0 {
		return nil
	}
	for range endTries {
		_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, begun{n, of})
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}

// begun are the connections that begin at the addresses of the numbers.
type begun struct {
	n  *Net
	at numbers
}

// MatchConntrackFlow is netlink.CustomConntrackFilter's.
func (b begun) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	i, ok := b.n.number(flow.Forward.SrcIP)
	return ok && b.at[i] > 0
}

// number tells whose address that is.
func (n *Net) number(ip net.IP) (i int, ok bool) {
	v4 := ip.To4()
	if v4 == nil || !n.cfg.Range.Contains(netip.AddrFrom4([4]byte(v4))) {
		return 0, false
	}
	base := n.cfg.Range.Addr().As4()
	return int(binary.BigEndian.Uint32(v4)-binary.BigEndian.Uint32(base[:])) / perBox, true
}
