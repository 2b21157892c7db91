//go:build linux

package microvm

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/fresh"
	"github.com/millrace/millrace/services/hostd/internal/serial"
)

const socketFile = "shim.sock"

// instance is the Instance of a running machine.
type box struct {
	*live.Box
	brake  brake
	images *images

	port chan struct{} // full while a Dial or a transfer of files is in progress
	conn *serial.Conn  // guarded by port, which takes one connection at a time
}

func (d *Driver) box(dir string, state live.State, proc *live.Proc) *box {
	d.uids.Mark(state.UIDBase)
	b := &box{Box: machineBox(dir, state, proc, d.sweep), brake: brake{dir, proc.Done()}, images: d.images, port: make(chan struct{}, 1)}
	b.Brake, b.Keep = b.brake, b.keep
	return b
}

// begin resumes the machine from where it was saved, and waits until its shim responds. A
// machine that was saved without memory waits for its spec.
func (b *box) begin(ctx context.Context, as birth) error {
	if err := wake(ctx, b.Dir, as.spec == nil); err != nil {
		return err
	}
	conn, err := b.dial(ctx, as)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dial implements driver.Instance. It waits for the response of the shim unless the
// guest is paused.
func (b *box) Dial(ctx context.Context) (net.Conn, error) { return b.dial(ctx, birth{}) }

// dial is Dial, also for a guest that still needs its spec.
func (b *box) dial(ctx context.Context, as birth) (net.Conn, error) {
	release, err := b.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := b.redial(ctx)
	if err == nil && as.spec != nil {
		err = as.tell(ctx, conn)
	}
	if err == nil {
		b.conn, err = b.open(ctx, conn)
	}
	switch {
	case errors.Is(err, vminit.ErrRefused): // and the guest is about to end
		return nil, kind.Wrap(kind.Exhausted, "create sandbox", string(b.State.ID), err)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, kind.Wrap(kind.Unavailable, "dial shim", string(b.State.ID), err)
	}
	return b.conn, nil
}

// hold waits for the port, which the caller holds until it calls release.
func (b *box) hold(ctx context.Context) (release func(), err error) {
	select {
	case b.port <- struct{}{}:
		return func() { <-b.port }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// redial restarts the port's stream and ends its previous connection. The caller holds the port.
func (b *box) redial(ctx context.Context) (net.Conn, error) {
	if b.conn != nil {
		b.conn.Close() //nolint:errcheck // it has ended
		b.conn = nil
	}
	return live.Dial(ctx, b.Dir)
}

// tell sends a waiting guest its spec and files.
func (as *birth) tell(ctx context.Context, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })() //nolint:errcheck // the write reports it
	as.spec.Now, as.spec.Seed = time.Now().UnixNano(), seed()
	if err := vminit.Send(conn, as.spec); err != nil || as.files == "" {
		return err
	}
	f, err := os.Open(as.files)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return vminit.SendFiles(conn, f)
}

// open starts a connection. A paused guest responds later.
func (b *box) open(ctx context.Context, conn net.Conn) (*serial.Conn, error) {
	if frozen, err := b.brake.Frozen(); err == nil && frozen {
		return serial.Begin(conn), nil
	}
	return serial.Dial(ctx, conn)
}

// seed returns random bytes for a guest's kernel.
func seed() []byte {
	b := make([]byte, fresh.MaxSeed)
	rand.Read(b) //nolint:errcheck // never fails
	return b
}
