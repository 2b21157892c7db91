package mail

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// dialer opens the connection of one mail. The client extends its deadline at each step, so that a
// relay that sends a byte now and then would hold it for ever.
type dialer struct {
	until time.Time
	host  string
	tls   bool
	conn  net.Conn
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, d.until)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.conn = conn
	limited := limitedConn{conn, d.until}
	if err := limited.SetDeadline(d.until); err != nil || !d.tls {
		return limited, err
	}
	secure := tls.Client(limited, &tls.Config{ServerName: d.host, MinVersion: tls.VersionTLS12})
	return secure, secure.HandshakeContext(ctx)
}

// close closes the connection, which the client leaves open after some errors.
func (d *dialer) close() {
	if d.conn != nil {
		d.conn.Close()
	}
}

// limitedConn is a connection whose deadlines are not after a time.
type limitedConn struct {
	net.Conn
	until time.Time
}

// SetDeadline sets both deadlines.
func (c limitedConn) SetDeadline(t time.Time) error {
	if t.IsZero() || t.After(c.until) {
		t = c.until
	}
	return c.Conn.SetDeadline(t)
}
