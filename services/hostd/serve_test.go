package hostd

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// place is one whose shim does as it is told with each connection, after its Hello.
type place struct {
	driver.Instance
	shim func(net.Conn)
}

func (p place) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, _, err := wire.NewReader(theirs).Next(); err != nil {
			return
		}
		if _, err := theirs.Write(wire.AppendHello(nil, &wire.Hello{})); err == nil {
			p.shim(theirs)
		}
	}()
	return ours, nil
}

func (place) Done() <-chan struct{} { return nil }

// The file that a spool may go to is wanted, not needed.
func TestConnectWithoutASpool(t *testing.T) {
	b := bare(&host{})
	b.h.cfg.DataDir = "/dev/null"
	b.inst = place{shim: func(c net.Conn) { io.Copy(io.Discard, c) }} //nolint:errcheck // until it is closed
	conn, err := b.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
