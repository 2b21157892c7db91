//go:build linux

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/usage"
	"github.com/millrace/millrace/services/hostd/internal/fifolink"
)

// instance is a running sandbox.
type instance struct {
	*live.Instance
	d     *Driver
	r     *runsc
	group *cgroup.Group

	control *control

	mu   sync.Mutex
	conn *fifolink.Conn // guarded by mu: the stream takes one at a time

	transition sync.Mutex // held while the sandbox is stopped or started

	counted atomic.Uint32 // number of processes at the last query; 0: never queried
}

func (d *Driver) newInstance(dir string, state live.State, proc *live.Proc) *instance {
	r := &runsc{id: state.ID, dir: filepath.Join(dir, workDir)}
	group, disk := cgroup.Reopen(state.Cgroups), &usage.Disk{}
	b := &instance{d: d, r: r, group: group, control: newControl(r)}
	b.Instance = &live.Instance{
		State: state, Dir: dir, Proc: proc, Group: group,
		Freezer: tasks{b},
		Sweep:   func(ctx context.Context) error { return d.sweep(ctx, dir, state) },
		Measure: func(ctx context.Context) (driver.Stats, error) {
			s, running, err := live.Measure(group, state.PID)
			if err == nil { // the contents of its files are in a file that has no name
				s.DiskBytes, _, err = disk.Of(ctx, filepath.Join(r.dir, diskDir), running.CPU, running.PIDs...)
			}
			if n := b.processes(ctx); n != 0 { // otherwise gVisor's own are reported, as before the first query
				s.Processes = n
			}
			return s, err
		},
	}
	b.Instance.Save, b.Instance.Checkpoint = b.save, b.checkpoint
	b.Instance.Kill = func(ctx context.Context) error { return live.KillFrozen(ctx, proc, group) }
	return b
}

// program opens the program that the sandbox's process runs, also when the file has been
// replaced since: builds of gVisor differ in their control protocol. A process that gets
// the pid after that one's end runs something else.
func (b *instance) program() (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", b.State.PID))
	if err == nil && b.Proc.Ended() {
		f.Close()
		err = errGone
	}
	return f, err
}

// Dial implements driver.Instance. It ends the previous connection. In a paused
// sandbox the connection starts when the sandbox is resumed.
func (b *instance) Dial(ctx context.Context) (net.Conn, error) {
	frozen, err := b.Freezer.Frozen()
	conn, lost := b.begin()
	if lost == nil && (err != nil || !frozen) {
		lost = conn.Await(ctx)
	}
	if ctx.Err() != nil {
		lost = ctx.Err()
	}
	if lost != nil {
		b.giveUp(conn)
		return nil, kind.Wrap(kind.Unavailable, "dial shim", string(b.State.ID), lost)
	}
	return conn, nil
}

var errGone = errors.New("the sandbox has ended")

// begin starts a connection and ends the previous one, since the stream takes one at a
// time. It does not wait for the peer to acknowledge that end.
func (b *instance) begin() (*fifolink.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hangUp()
	select {
	case <-b.Done():
		return nil, errGone
	default:
	}
	pair, err := b.r.pair()
	if err != nil {
		return nil, err
	}
	b.conn = fifolink.Begin(pair)
	return b.conn, nil
}

// giveUp ends a connection unless another has replaced it: it would read the answer to
// that one's greeting.
func (b *instance) giveUp(conn *fifolink.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == conn {
		b.hangUp()
	}
}

// hangUp ends the current connection; b.mu must be held.
func (b *instance) hangUp() {
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
}

// Destroy implements driver.Instance.
func (b *instance) Destroy(ctx context.Context) error {
	b.mu.Lock()
	b.hangUp()
	b.mu.Unlock()
	b.control.close()
	return b.Instance.Destroy(ctx)
}

// pair opens hostd's ends of the FIFOs. GVisor holds the other ends as long as it runs.
func (r *runsc) pair() (p fifolink.Pair, err error) {
	if p.In, err = os.OpenFile(r.in(toHostd), os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return p, err
	}
	if p.Out, err = os.OpenFile(r.in(toShim), os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil {
		p.In.Close()
	}
	return p, err
}

// store opens the file with the contents of what the sandbox wrote, for reading.
func store(pid int) (*os.File, error) {
	path, err := storePath(pid)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// storePath finds that file. It has no name: it is among the descriptors of the
// sandbox's process.
func storePath(pid int) (string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err == nil && strings.Contains(to, "/"+workDir+"/"+diskDir+"/") {
			return path, nil
		}
	}
	return "", fmt.Errorf("store of sandbox process %d: %w", pid, fs.ErrNotExist)
}

// sweep ends the remaining parts of a sandbox whose process has ended, or was never
// recorded, and removes its files.
func (d *Driver) sweep(ctx context.Context, dir string, state live.State) error {
	r := &runsc{id: state.ID, dir: filepath.Join(dir, workDir)}
	group := cgroup.Reopen(state.Cgroups)
	if err := group.Thaw(ctx); err != nil {
		return err
	}
	kill := r.killMarked
	if group.Holds() { // holds everything that runsc started
		kill = group.Kill
	}
	if err := kill(ctx); err != nil {
		return err
	}
	if err := group.Remove(ctx); err != nil {
		return err
	}
	r.sockets()
	return live.Remove(dir, driver.Files()...)
}

// killMarked kills every process that runsc started for this sandbox and returns when
// none is left. It reads all processes of the host, which takes longer the more
// sandboxes there are; a cgroup is used instead where there is one.
func (r *runsc) killMarked(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		all, err := live.Processes()
		if err != nil {
			return err
		}
		found := false
		for pid := range all {
			if r.marked(pid) {
				found = true
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		if !found {
			return nil
		}
		if !waiting.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (r *runsc) marked(pid int) bool {
	if pid == os.Getpid() {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.Contains(string(b), "\x00"+r.rootFlag()+"\x00")
}
