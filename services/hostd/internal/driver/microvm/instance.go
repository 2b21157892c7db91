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
	"github.com/millrace/millrace/services/hostd/internal/fifolink"
	"github.com/millrace/millrace/services/hostd/internal/reseed"
)

const socketFile = "shim.sock"

// instance is the Instance of a running machine.
type instance struct {
	*live.Instance
	freezer freezer
	images  *images

	port chan struct{}  // full while a Dial or a transfer of files is in progress
	conn *fifolink.Conn // guarded by port, which takes one connection at a time
}

func (d *Driver) newInstance(dir string, state live.State, proc *live.Proc) *instance {
	d.uids.Mark(state.UIDBase)
	b := &instance{Instance: machineInstance(dir, state, proc, d.sweep), freezer: freezer{dir, proc.Done()}, images: d.images, port: make(chan struct{}, 1)}
	b.Freezer, b.Checkpoint = b.freezer, b.checkpoint
	return b
}

// begin resumes the machine from where it was saved, and waits until its shim responds. A
// machine that was saved without memory waits for its spec.
func (b *instance) begin(ctx context.Context, as origin) error {
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
func (b *instance) Dial(ctx context.Context) (net.Conn, error) { return b.dial(ctx, origin{}) }

// dial is Dial, also for a guest that still needs its spec.
func (b *instance) dial(ctx context.Context, as origin) (net.Conn, error) {
	release, err := b.acquirePort(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	conn, err := b.redial(ctx)
	if err == nil && as.spec != nil {
		err = as.sendSpec(ctx, conn)
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

// acquirePort waits for the port, which the caller holds until it calls release.
func (b *instance) acquirePort(ctx context.Context) (release func(), err error) {
	select {
	case b.port <- struct{}{}:
		return func() { <-b.port }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// redial restarts the port's stream and ends its previous connection. The caller holds the port.
func (b *instance) redial(ctx context.Context) (net.Conn, error) {
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
	return live.Dial(ctx, b.Dir)
}

// sendSpec sends a waiting guest its spec and files.
func (as *origin) sendSpec(ctx context.Context, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	as.spec.Now, as.spec.Seed = time.Now().UnixNano(), seed()
	if err := vminit.Send(conn, as.spec); err != nil || as.files == "" {
		return err
	}
	f, err := os.Open(as.files)
	if err != nil {
		return err
	}
	defer f.Close()
	return vminit.SendFiles(conn, f)
}

// open starts a connection. A paused guest responds later.
func (b *instance) open(ctx context.Context, conn net.Conn) (*fifolink.Conn, error) {
	if frozen, err := b.freezer.Frozen(); err == nil && frozen {
		return fifolink.Begin(conn), nil
	}
	return fifolink.Dial(ctx, conn)
}

// seed returns random bytes for a guest's kernel.
func seed() []byte {
	b := make([]byte, reseed.MaxSeed)
	rand.Read(b)
	return b
}
