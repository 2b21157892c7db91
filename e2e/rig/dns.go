package rig

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// DNS starts a name server on loopback with IPv4 addresses of the given names, and returns
// its address. All other names do not exist.
func DNS(t testing.TB, names map[string]string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		var b [512]byte
		for {
			n, from, err := conn.ReadFrom(b[:])
			if err != nil {
				return
			}
			if answer := resolve(b[:n], names); answer != nil {
				conn.WriteTo(answer, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// resolve returns the response to a query (RFC 1035); nil if it is malformed.
func resolve(query []byte, names map[string]string) []byte {
	const head, typeA, class, noSuchName, ttl = 12, 1, 1, 3, 1
	at, labels := head, []string(nil)
	for at < len(query) && query[at] != 0 {
		n := int(query[at])
		if at+1+n >= len(query) {
			return nil
		}
		labels = append(labels, string(query[at+1:at+1+n]))
		at += 1 + n
	}
	at += 5 // the root, type and class
	if at > len(query) {
		return nil
	}
	out := append([]byte(nil), query[:2]...) // its id
	ip, known := names[strings.ToLower(strings.Join(labels, "."))]
	flags, answers := uint16(0x8180), uint16(0)
	if !known {
		flags |= noSuchName
	} else if binary.BigEndian.Uint16(query[at-4:]) == typeA {
		answers = 1
	}
	for _, v := range [...]uint16{flags, 1, answers, 0, 0} {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	out = append(out, query[head:at]...)
	if answers == 0 {
		return out
	}
	addr := netip.MustParseAddr(ip).As4()
	for _, v := range [...]uint16{0xc000 | head, typeA, class, 0, ttl, uint16(len(addr))} {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return append(out, addr[:]...)
}
