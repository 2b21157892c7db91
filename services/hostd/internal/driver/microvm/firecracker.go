//go:build linux

package microvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/cgroup"
	"github.com/millrace/millrace/services/hostd/internal/driver/internal/live"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
)

const (
	firecrackerName = "firecracker"
	apiFile         = "api.sock"
	vsockFile       = "vsock.sock"
	stateFile       = "state" // in a snapshot: the machine without its memory
	shimPort        = 1024
)

// FirecrackerConfig configures a Firecracker; its zero value works where everything is
// installed.
type FirecrackerConfig struct {
	Program string // empty: firecracker
	Kernel  string // as Config.Kernel, but boot/ contains an uncompressed vmlinux-*-cloud-amd64
	Cache   string // as Config.Cache
	Log     *slog.Logger
}

// Firecracker is the driver that runs the same guests with Firecracker: the shim
// listens on a vsock instead of the serial port, so that several connections are
// possible. It was written from Firecracker's documentation and is tested against
// a server that imitates its API: it has never run on hardware, and so no guest has
// booted in it yet. It does not use Firecracker's jailer.
type Firecracker struct {
	cfg    FirecrackerConfig
	groups func() *cgroup.Tree
	images *images
}

var (
	_ driver.Driver   = (*Firecracker)(nil)
	_ driver.Preparer = (*Firecracker)(nil)
)

// NewFirecracker returns a Firecracker. It has no side effects.
func NewFirecracker(cfg FirecrackerConfig) *Firecracker {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Program = cmp.Or(cfg.Program, "firecracker")
	return &Firecracker{cfg: cfg, groups: sync.OnceValue(cgroup.Open), images: newImages(cacheDir(cfg.Cache))}
}

// Name implements driver.Driver.
func (d *Firecracker) Name() string { return firecrackerName }

// vsockModules returns the modules that the guest needs for its disk and its vsock.
func vsockModules() []string {
	return []string{
		"drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_mmio", "drivers/block/virtio_blk",
		"net/vmw_vsock/vsock", "net/vmw_vsock/vmw_vsock_virtio_transport_common", "net/vmw_vsock/vmw_vsock_virtio_transport",
		"fs/squashfs/squashfs", "fs/overlayfs/overlay",
	}
}

func (d *Firecracker) kernel() (kernel, error) {
	return findKernel(d.cfg.Kernel, "vmlinux-", vsockModules())
}

// Probe implements driver.Driver. It boots no guest.
func (d *Firecracker) Probe(context.Context) (driver.Caps, error) {
	caps := driver.Caps{
		Isolation: "machine", Rootless: true, MemoryLimit: true, PidsLimit: true, CPULimit: d.groups().Caps().CPU,
		Pause: true, Memory: true, Config: true, CPUMilli: defaultCPU, MemoryMiB: defaultMemory,
		Notes: []string{
			"this driver has never been tested on hardware",
			"files are kept in the guest's memory; a snapshot has them only with the memory",
		},
	}
	for _, tool := range []string{d.cfg.Program, "mksquashfs"} {
		if _, err := exec.LookPath(tool); err != nil {
			return caps, kind.Wrap(kind.Unavailable, "probe", firecrackerName, err)
		}
	}
	if _, err := d.kernel(); err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", firecrackerName, err)
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return caps, kind.Wrap(kind.Unavailable, "probe", firecrackerName, err)
	}
	return caps, f.Close()
}

// Close implements io.Closer, as Driver.Close does.
func (d *Firecracker) Close() error {
	d.images.close()
	return nil
}

// Attach implements driver.Driver.
func (d *Firecracker) Attach(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return live.Reattach(ctx, s, firecrackerName, sweep, d.newInstance)
}

// List implements driver.Driver.
func (d *Firecracker) List(_ context.Context, root string) ([]sandbox.ID, error) {
	return live.List(root, firecrackerName)
}

// Create implements driver.Driver. It returns when the guest's shim has responded.
func (d *Firecracker) Create(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return create(ctx, d, d.groups(), d.cfg.Log, s, d.prepare, sweep)
}

// prepare writes the guest's first file system and plans the API calls that boot it.
func (d *Firecracker) prepare(ctx context.Context, s driver.Spec) (*plan, error) {
	memory := cmp.Or(s.MemoryMiB, defaultMemory)
	if fi, err := os.Stat(filepath.Join(s.From, memoryFile)); s.From != "" && err == nil {
		memory = uint32(fi.Size() >> 20)
	}
	calls, err := d.calls(ctx, s, memory)
	if err != nil {
		return nil, err
	}
	return &plan{
		memoryMiB: memory, cpus: cpus(s), close: func() {},
		launch: func(_ context.Context, group *cgroup.Group) (*live.Proc, func(context.Context) error, error) {
			proc, err := launch(s, group, d.cfg.Program, "--api-sock", apiFile, "--id", string(s.ID))
			return proc, nil, err
		},
		instance: func(state live.State, proc *live.Proc) (driver.Instance, *live.Instance, func(context.Context) error) {
			b := d.newInstance(s.Dir, state, proc)
			return b, b.Instance, func(ctx context.Context) error { return b.begin(ctx, calls) }
		},
	}, nil
}

// launch starts a program in the sandbox's directory, in a session of its own, since it
// outlives hostd. Its stdout, the guest's unbounded console, is discarded.
func launch(s driver.Spec, group *cgroup.Group, name string, args ...string) (*live.Proc, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	null, log, err := live.Streams(s.Dir)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	defer log.Close()
	attr := &syscall.SysProcAttr{Setsid: true}
	pidfd := live.PidFD(attr)
	var p *os.Process
	err = live.OnThread(s.Dir, func() error {
		return group.Start(attr, func() (err error) {
			p, err = os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{
				Sys: attr, Files: []*os.File{null, null, log}, Env: []string{"PATH=/usr/bin:/bin"},
			})
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	proc, err := live.Watch(p, *pidfd)
	if err != nil {
		return nil, err
	}
	if err := live.SetOOMScore(p.Pid); err != nil {
		return nil, errors.Join(err, live.Kill(context.Background(), proc))
	}
	return proc, nil
}

// call is one request to Firecracker's API.
type call struct {
	method, path string
	body         any
}

type object map[string]any

// Prepare implements driver.Preparer: it makes the template's image.
func (d *Firecracker) Prepare(ctx context.Context, s *driver.Spec) error {
	if s.From != "" {
		return nil
	}
	_, err := d.images.get(ctx, s.Root)
	return live.Failed(s.ID, err)
}

// calls returns the API calls that boot or load the machine that s describes.
func (d *Firecracker) calls(ctx context.Context, s driver.Spec, memoryMiB uint32) ([]call, error) {
	work := filepath.Join(s.Dir, workDir)
	if s.From != "" {
		if _, err := os.Stat(filepath.Join(s.From, stateFile)); errors.Is(err, fs.ErrNotExist) {
			return nil, kind.New(kind.NotFound, "find snapshot", "", "snapshot not found")
		}
		if err := errors.Join(os.Mkdir(work, 0o700), keepMachine(s.From, work), d.images.users().Add(filepath.Dir(s.Dir))); err != nil {
			return nil, err
		}
		return []call{{"PUT", "/snapshot/load", object{
			"snapshot_path": filepath.Join(s.From, stateFile), "resume_vm": true,
			"mem_backend": object{"backend_type": "File", "backend_path": filepath.Join(s.From, memoryFile)},
		}}}, nil
	}
	k, err := d.kernel()
	if err != nil {
		return nil, kind.Wrap(kind.Unavailable, "create sandbox", string(s.ID), err)
	}
	image, err := d.images.get(ctx, s.Root)
	if err != nil {
		return nil, err
	}
	m := machine{accel: "kvm", memoryMiB: memoryMiB, cpus: cpus(s), image: image}
	if err := errors.Join(d.images.users().Add(filepath.Dir(s.Dir)), m.save(work)); err != nil {
		return nil, err
	}
	spec := guest(s)
	spec.Now, spec.Seed = time.Now().UnixNano(), seed()
	spec.Argv = append([]string{"shim"}, s.ShimArgs...)
	if err := k.writeInitrd(filepath.Join(work, initrdFile), s.ShimPath, vminit.Boot{VSock: shimPort, Spec: spec}); err != nil {
		return nil, err
	}
	return []call{
		{"PUT", "/machine-config", object{"vcpu_count": cpus(s), "mem_size_mib": memoryMiB}},
		{"PUT", "/boot-source", object{
			"kernel_image_path": k.image, "initrd_path": filepath.Join(workDir, initrdFile),
			"boot_args": "quiet reboot=k panic=-1 rdinit=/" + vminit.ShimFile + " -- " + vminit.Arg,
		}},
		{"PUT", "/drives/root", object{"drive_id": "root", "path_on_host": image, "is_root_device": false, "is_read_only": true}},
		// Relative, so that a machine made from this one's snapshot has its own socket.
		{"PUT", "/vsock", object{"guest_cid": 3, "uds_path": vsockFile}},
		{"PUT", "/actions", object{"action_type": "InstanceStart"}},
	}, nil
}

// fcInstance is the Instance of a running machine.
type fcInstance struct {
	*live.Instance
	api    api
	images *images
}

func (d *Firecracker) newInstance(dir string, state live.State, proc *live.Proc) *fcInstance {
	b := &fcInstance{Instance: machineInstance(dir, state, proc, sweep), api: newAPI(dir), images: d.images}
	b.Freezer, b.Checkpoint = b.api, b.checkpoint
	return b
}

// begin makes the calls and waits until the machine's shim responds.
func (b *fcInstance) begin(ctx context.Context, calls []call) error {
	for {
		// The socket appears a moment after the program starts.
		conn, err := live.DialAt(ctx, b.Dir, apiFile)
		if err == nil {
			conn.Close()
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := b.api.do(ctx, c, nil); err != nil {
			return err
		}
	}
	for {
		conn, err := b.Dial(ctx)
		if err == nil {
			return conn.Close()
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// Dial implements driver.Instance: Firecracker connects to the guest's port that the
// first line names, and responds with a line.
func (b *fcInstance) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := live.DialAt(ctx, b.Dir, vsockFile)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		if err = connectGuest(conn); !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			conn.Close()
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, kind.Wrap(kind.Unavailable, "dial shim", string(b.State.ID), err)
	}
	return conn, nil
}

func connectGuest(conn net.Conn) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", shimPort); err != nil {
		return err
	}
	const most = 32
	var line []byte
	for c := make([]byte, 1); len(line) < most; line = append(line, c[0]) {
		// Not beyond the end of the line: what follows is the shim's.
		if _, err := io.ReadFull(conn, c); err != nil {
			return err
		}
		if c[0] == '\n' {
			break
		}
	}
	if !strings.HasPrefix(string(line), "OK ") {
		return fmt.Errorf("the vsock responded %q", line)
	}
	return nil
}

// checkpoint implements live.Instance.Checkpoint. It requires memory.
func (b *fcInstance) checkpoint(ctx context.Context, dir string, memory bool) error {
	if !memory {
		return kind.New(kind.Unimplemented, "snapshot sandbox", string(b.State.ID), "a machine's files are in its memory: a snapshot without memory is not supported")
	}
	frozen, err := b.api.Frozen()
	if err != nil {
		return err
	}
	if !frozen {
		// ctx may have ended, but the machine must run again.
		defer b.api.Thaw(context.WithoutCancel(ctx)) //nolint:errcheck // Resume repeats it
		if err := b.api.Freeze(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(b.images.users().Add(filepath.Dir(dir)), keepMachine(filepath.Join(b.Dir, workDir), dir)); err != nil {
		return err
	}
	return b.api.do(ctx, call{"PUT", "/snapshot/create", object{
		"snapshot_type": "Full", "snapshot_path": filepath.Join(dir, stateFile), "mem_file_path": filepath.Join(dir, memoryFile),
	}}, nil)
}

// jsonOf returns a call's body.
func (c *call) jsonOf() ([]byte, error) {
	if c.body == nil {
		return nil, nil
	}
	return json.Marshal(c.body)
}
