package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/kind"
)

// SOCKS5 (RFC 1928): without authentication, CONNECT only.
const (
	socksVersion = 5
	socksNone    = 0    // no authentication
	socksRefused = 0xff // no acceptable method
	socksConnect = 1
	socksIPv4    = 1
	socksName    = 3
	socksIPv6    = 4

	socksOK          = 0
	socksFailure     = 1
	socksDenied      = 2
	socksUnreachable = 4
	socksClosed      = 5
	socksTimeout     = 6
	socksCommand     = 7
	socksAddress     = 8
)

// socks serves a connection whose first byte is SOCKS5's version.
func (w *Route) socks(c *client) {
	code, target := greet(c)
	var f *flow
	if code == socksOK {
		ctx, stop := c.watchClient()
		var err error
		if f, err = w.dial(ctx, target, w.useOf(target)); err != nil {
			code = socksCode(err)
		}
		stop()
	}
	if code == socksRefused {
		c.Close()
		return
	}
	_, err := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	if f == nil || err != nil {
		c.Close()
		if f != nil {
			f.Close()
		}
		return
	}
	c.SetDeadline(time.Time{})
	w.carry(c, target, f)
}

// watchClient returns a context that ends when the client's stream breaks. Only watchClient
// may read from the client before stop.
func (c *client) watchClient() (ctx context.Context, stop func()) {
	c.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		early := make([]byte, 1)
		n, err := c.Stream.Read(early)
		c.first = append(c.first, early[:n]...)
		if err != nil && !errors.Is(err, io.EOF) { // after the end of its data the client may still read
			cancel()
		}
	}()
	return ctx, func() {
		c.SetReadDeadline(time.Unix(1, 0))
		<-over
		cancel()
	}
}

// greet reads a client's request: code is socksOK, the reply for the client, or
// socksRefused if it already got its reply.
func greet(c io.ReadWriter) (code byte, target string) {
	var b [256]byte
	if _, err := io.ReadFull(c, b[:2]); err != nil || b[0] != socksVersion {
		return socksRefused, ""
	}
	methods := b[2 : 2+min(int(b[1]), len(b)-2)]
	if _, err := io.ReadFull(c, methods); err != nil || len(methods) != int(b[1]) {
		return socksRefused, ""
	}
	if !slices.Contains(methods, socksNone) {
		c.Write([]byte{socksVersion, socksRefused}) //nolint:errcheck // the connection ends anyway
		return socksRefused, ""
	}
	if _, err := c.Write([]byte{socksVersion, socksNone}); err != nil {
		return socksRefused, ""
	}
	if _, err := io.ReadFull(c, b[:4]); err != nil || b[0] != socksVersion {
		return socksRefused, ""
	}
	command, family := b[1], b[3]
	host, ok := socksHost(c, family)
	if !ok {
		return socksAddress, ""
	}
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return socksRefused, ""
	}
	if command != socksConnect {
		return socksCommand, ""
	}
	return socksOK, net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(b[:2]))))
}

func socksHost(r io.Reader, family byte) (string, bool) {
	var b [256]byte
	var n int
	switch family {
	case socksIPv4:
		n = 4
	case socksIPv6:
		n = 16
	case socksName:
		if _, err := io.ReadFull(r, b[:1]); err != nil {
			return "", false
		}
		n = int(b[0])
	default:
		return "", false
	}
	if _, err := io.ReadFull(r, b[:n]); err != nil {
		return "", false
	}
	if family == socksName {
		return string(b[:n]), true
	}
	a, ok := netip.AddrFromSlice(b[:n])
	return a.String(), ok
}

func socksCode(err error) byte {
	switch kind.Of(err) {
	case kind.Denied:
		return socksDenied
	case kind.NotFound, kind.Unavailable:
		return socksUnreachable
	case kind.Precondition:
		return socksClosed
	case kind.Deadline:
		return socksTimeout
	}
	return socksFailure
}
