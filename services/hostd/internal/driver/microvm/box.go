//go:build linux

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/serial"
)

const socketFile = "shim.sock"

// box is the Instance of a living machine.
type box struct {
	*live.Box
	brake brake

	mu   sync.Mutex
	conn *serial.Conn // by mu: the port takes one at a time
}

func (d *Driver) box(dir string, state live.State, proc *live.Proc) *box {
	b := &box{brake: brake{dir, proc.Done()}}
	b.Box = &live.Box{
		State: state, Dir: dir, Proc: proc, Brake: b.brake,
		Kill:  func(ctx context.Context) error { return live.End(ctx, proc) },
		Sweep: func(ctx context.Context) error { return sweep(ctx, dir, state) },
		Measure: func(context.Context) (driver.Stats, error) {
			return live.Measure(cgroup.Reopen(state.Cgroups), proc.PID)
		},
	}
	return b
}

// begin notes the machine down and waits until its shim answers.
func (b *box) begin(ctx context.Context, state *live.State) error {
	if err := note(b.Box, state); err != nil {
		return err
	}
	ctx, cancel := until(ctx, b.Done()) // then nobody will answer
	defer cancel()
	if state.From != "" {
		if err := wake(ctx, b.Dir); err != nil {
			return err
		}
	}
	conn, err := b.Dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Dial is driver.Instance.Dial. It waits for the answer of a shim that
// does not stand still.
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.conn.Close() //nolint:errcheck // it is over
	}
	conn, err := live.Dial(ctx, b.Dir)
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
	Accel     string `json:"accel"`
	MemoryMiB uint32 `json:"memory_mib"`
	CPUs      uint32 `json:"cpus"`
	Image     string `json:"image"`
}

// Snapshot is driver.Instance.Snapshot. It has the memory, or there is none.
func (b *box) Snapshot(ctx context.Context, dir string, memory bool) error {
	if !memory {
		return b.Box.Snapshot(ctx, dir, memory)
	}
	err := b.snapshot(ctx, dir)
	if err != nil {
		err = errors.Join(err, live.Remove(dir, memoryFile, machineFile))
	}
	return kind.Wrap(over(b.Box, err), "snapshot sandbox", string(b.State.ID), err)
}

func (b *box) snapshot(ctx context.Context, dir string) (err error) {
	m, err := os.ReadFile(filepath.Join(b.Dir, workDir, machineFile))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, machineFile), m, 0o600); err != nil {
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
	return q.migrate(ctx, f)
}

// save notes down what the memory will fit.
func (m *machine) save(dir string) error {
	b, err := json.Marshal(saved{m.accel, m.memoryMiB, m.cpus, m.image})
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
	if s.Accel != m.accel {
		return kind.Newf(kind.Invalid, "load snapshot", "", "it was made with %s, and here is %s", s.Accel, m.accel)
	}
	if _, err := os.Stat(s.Image); err != nil {
		return kind.Wrap(kind.NotFound, "load snapshot", "", err)
	}
	m.memoryMiB, m.cpus, m.image = s.MemoryMiB, s.CPUs, s.Image
	return nil
}

// openMemory opens the memory of a snapshot; nil without one.
func openMemory(from string) (*os.File, error) {
	if from == "" {
		return nil, nil
	}
	return os.Open(filepath.Join(from, memoryFile))
}
