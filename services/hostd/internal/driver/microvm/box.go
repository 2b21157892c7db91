//go:build linux

package microvm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/fresh"
	"github.com/millrace/millrace/services/hostd/internal/serial"
)

const socketFile = "shim.sock"

// box is the Instance of a living machine.
type box struct {
	*live.Box
	brake  brake
	images *images

	mu   sync.Mutex
	conn *serial.Conn // by mu: the port takes one at a time
}

func (d *Driver) box(dir string, state live.State, proc *live.Proc) *box {
	d.uids.Mark(state.UIDBase)
	b := &box{Box: machineBox(dir, state, proc, d.sweep), brake: brake{dir, proc.Done()}, images: &d.images}
	b.Brake, b.Keep = b.brake, b.keep
	return b
}

// begin lets the machine go on where it was saved, and waits until its shim answers. One
// that was saved without memory waits for its spec.
func (b *box) begin(ctx context.Context, spec *vminit.Spec) error {
	if err := wake(ctx, b.Dir, spec == nil); err != nil {
		return err
	}
	conn, err := b.dial(ctx, spec)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dial is driver.Instance.Dial. It waits for the answer of a shim that
// does not stand still.
func (b *box) Dial(ctx context.Context) (net.Conn, error) { return b.dial(ctx, nil) }

// dial is Dial, also of a guest that first must be told its spec.
func (b *box) dial(ctx context.Context, spec *vminit.Spec) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.conn.Close() //nolint:errcheck // it is over
	}
	conn, err := live.Dial(ctx, b.Dir)
	if err == nil && spec != nil {
		spec.Now, spec.Seed = time.Now().UnixNano(), seed()
		err = vminit.Send(conn, spec)
	}
	if err == nil {
		b.conn, err = b.open(ctx, conn)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, kind.Wrap(kind.Unavailable, "dial shim", string(b.State.ID), err)
	}
	return b.conn, nil
}

// open begins a connection. A guest that stands still answers later.
func (b *box) open(ctx context.Context, conn net.Conn) (*serial.Conn, error) {
	if frozen, err := b.brake.Frozen(); err == nil && frozen {
		return serial.Begin(conn), nil
	}
	return serial.Dial(ctx, conn)
}

// Files in a snapshot.
const (
	memoryFile  = "memory"
	machineFile = "machine.json"
)

// saved is the machine of a snapshot: its memory fits no other.
type saved struct {
	Board     int    `json:"board"`
	Accel     string `json:"accel"`
	MemoryMiB uint32 `json:"memory_mib"`
	CPUs      uint32 `json:"cpus"`
	Image     string `json:"image"`
}

// keep is live.Box.Keep. There is the memory, or no snapshot.
func (b *box) keep(ctx context.Context, dir string, memory bool) (err error) {
	if !memory {
		return errNoFiles
	}
	if err := errors.Join(b.images.users().Note(filepath.Dir(dir)), keepMachine(filepath.Join(b.Dir, workDir), dir)); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, memoryFile), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	frozen, err := b.brake.Frozen()
	if err != nil {
		return err
	}
	if !frozen {
		// ctx may be over, but nobody else would let it run again.
		defer b.brake.Thaw(context.WithoutCancel(ctx)) //nolint:errcheck // Resume does it again
	}
	q, err := openQMP(ctx, b.Dir)
	if err != nil {
		return err
	}
	defer q.close()
	if _, err := q.do("stop", nil); err != nil {
		return err
	}
	return q.migrate(ctx, f, true)
}

// seed is what a kernel's random numbers are to begin with.
func seed() []byte {
	b := make([]byte, fresh.MaxSeed)
	rand.Read(b) //nolint:errcheck // never fails
	return b
}

// save notes down what the memory will fit.
func (m *machine) save(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(saved{board, m.accel, m.memoryMiB, m.cpus, m.image})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, machineFile), b, 0o600)
}

// load is the machine of a snapshot.
func (m *machine) load(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return kind.New(kind.NotFound, "find snapshot", "", "no snapshot there")
	}
	if err != nil {
		return err
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s.Board != board {
		return kind.New(kind.Invalid, "load snapshot", "", "it was made by another version, on another board")
	}
	if s.Accel != m.accel {
		return kind.Newf(kind.Invalid, "load snapshot", "", "it was made with %s, and here is %s", s.Accel, m.accel)
	}
	if _, err := os.Stat(s.Image); err != nil {
		return kind.Wrap(kind.NotFound, "load snapshot", "", err)
	}
	m.memoryMiB, m.cpus, m.image = s.MemoryMiB, s.CPUs, s.Image
	return nil
}
