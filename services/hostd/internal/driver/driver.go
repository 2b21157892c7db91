// Package driver defines how a host creates and destroys instances: isolated
// environments, one for each sandbox. A driver does not manage processes: it starts
// one shim in the instance and provides the connection to it; the shim does the rest.
//
// # Lifecycle
// [Driver.Create] makes the instance and leaves the shim running, with a listening unix
// socket as its fd 3. The shim outlives the process that called Create. The next
// run of hostd finds the instance with [Driver.List] and [Driver.Attach], since Spec.Dir
// holds all state. If a kill interrupts Create or Destroy at any point, List still returns
// the remaining parts, and Attach or Destroy complete the cleanup.
//
// # Trust
// Everything read from a connection that [Instance.Dial] returned was written inside the
// instance and is hostile input.
//
// Every driver passes drivertest.Run.
package driver

import (
	"context"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// Spec describes the instance to create. Every field but ID, Dir and ShimPath may be zero.
type Spec struct {
	ID       sandbox.ID        // instance id
	Hostname string            // hostname, where the driver sets one; empty: ID
	Template string            // name in records and errors; only Root is used
	Env      map[string]string // the shim's environment on top of PATH, HOME, USER, LOGNAME, SHELL, LANG; it contains nothing of the host's

	// Root is the tree that the instance's root file system is made from: an absolute
	// path of a directory inside one that only hostd may enter. It is only read, and any
	// number of instances can share it. Where hostd runs as root, its files have the uids
	// and gids that they have inside; elsewhere they all belong to hostd's user. /dev,
	// /proc, /sys, /tmp, /etc and /run are directories in it. Empty: the host template,
	// made of the host's own files.
	Root string
	Sudo bool // set-uid programs in Root work, so that processes inside can become the sandbox's root. Where Root is empty, the driver provides sudo for `user`

	CPUMilli  uint32 // thousandths of a CPU; 0: no limit
	MemoryMiB uint32 // 0: no limit
	PIDs      uint32 // processes and threads; 0, or a value above the driver's maximum: that maximum
	DiskMiB   uint32 // 0: no limit. A driver that cannot limit the disk limits the size of each file
	OpenFiles uint32 // per process; 0: 65536

	// From is a directory that Instance.Snapshot filled, of this driver or of one with
	// the same Caps.FileFits. The instance starts with the files in it and, if it holds
	// the memory, with the processes; its shim then reports the processes of the sandbox
	// that was snapshotted. From is only read, and any number of instances can share it;
	// it must exist as long as one of them does. Root and Sudo must be those of the
	// sandbox that was snapshotted.
	From string

	// Volumes are directories of the host that are mounted in the instance, in an order
	// in which they can be mounted. They belong to the caller, which keeps them as long
	// as the instance exists; several instances may mount the same one. Where hostd runs
	// as root, their files have the uids and gids that they have inside. Requires
	// Caps.Volumes.
	Volumes []Volume

	// Dir is the sandbox's own directory on the host: an absolute path of any length,
	// created by the caller with mode 0700. The driver's own files in it have the names
	// that [Files] returns; Destroy removes those and no others.
	Dir string

	ShimPath string   // a static or dynamic ELF binary, not a script; it need not be visible inside
	ShimArgs []string // arguments without argv[0]

	// Cgroup makes the driver pass two more descriptors to the shim: OOMFd and ForksFd.
	Cgroup bool
}

// Volume mounts the host directory Source at Path. Both are absolute and clean. Path is
// created if it does not exist.
type Volume struct{ Source, Path string }

// HostName returns Hostname, or ID if that is empty.
func (s *Spec) HostName() string {
	if s.Hostname != "" {
		return s.Hostname
	}
	return string(s.ID)
}

// MaxPIDs returns the limit of processes and threads for a driver whose own limit is most.
func (s *Spec) MaxPIDs(most uint32) uint32 {
	if s.PIDs == 0 {
		return most
	}
	return min(s.PIDs, most)
}

// Descriptors that a shim inherits besides the standard three, of which
// stdin and stdout are /dev/null and stderr is a log in Spec.Dir.
const (
	ListenFd = 3 // a listening unix socket

	// OOMFd is a file whose line "oom_kill N" counts the processes of the sandbox that
	// the kernel killed because Spec.MemoryMiB was used up; an empty file where they
	// are not counted.
	OOMFd = 4

	// ForksFd is the file of a cgroup that limits processes to Spec.PIDs. A thread of the
	// shim that writes "0" to it joins that group, and so do its children; the shim's
	// other threads stay outside, so that the shim can create threads when the sandbox
	// has used up its processes. An empty file where there is no such group.
	ForksFd = 5
)

// Files returns the names that a driver uses in Spec.Dir, in the order in which
// they are removed. All other names are the caller's.
func Files() []string {
	// The state goes last: List must find the instance as long as anything is left.
	return []string{"ns", "gv", "vm", "disk", "home", "pause", "qmp.sock", "api.sock", "vsock.sock", LogFile, "shim.sock", "state.json.tmp", "state.json"}
}

// Limits that apply also where Spec sets none.
const (
	MaxProcesses     = 4096 // includes threads
	DefaultOpenFiles = 1 << 16
)

// ShimThreads is the number of threads that a shim may have when its sandbox's processes
// have used up Spec.PIDs. Where the shim's RLIMIT_NPROC has a hard limit above the soft
// one, the difference is reserved for the shim.
const ShimThreads = 64

// OOMScore is the oom_score_adj of every process in an instance: when the host runs out of
// memory, the kernel kills sandboxes before the processes that serve them, the largest
// first. The shim's children have a higher score, and a browser may raise that of its own
// child processes further.
const OOMScore = 200

// Caps describes what a driver can do on this host, as Probe found it.
type Caps struct {
	Isolation       string   // "none", "process", "kernel" or "machine": the boundary between a sandbox and the host
	Rootless        bool     // works, or would work, without root
	MemoryLimit     bool     // Spec.MemoryMiB applies to the sandbox as a whole
	RootCanKillShim bool     // root in a sandbox can kill the shim, and with it the sandbox
	OOMEndsSandbox  bool     // a sandbox that uses up Spec.MemoryMiB ends; otherwise one of its processes does
	PidsLimit       bool     // Spec.PIDs applies to the sandbox as a whole
	CPULimit        bool     // Spec.CPUMilli applies
	DiskLimit       bool     // Spec.DiskMiB applies to everything that the sandbox writes
	WarmMiB         uint32   // memory of an idle instance in MiB, if a warm pool is worth its cost; 0: it is not
	Pause           bool     // Instance.Pause works
	Files           bool     // Instance.Snapshot can save files
	Memory          bool     // Instance.Snapshot can save the memory, too
	Volumes         bool     // Spec.Volumes are mounted
	Config          bool     // bootstrap.Directory is in memory: conversations work
	CPUMilli        uint32   // default where Spec has none; 0: no limit
	MemoryMiB       uint32   // default where Spec has none; 0: no limit
	Fits            string   // compatibility of snapshots: this driver can use those of hosts where it reports the same value; empty: only this host's
	FileFits        string   // the same for snapshots without memory, across drivers; empty: Fits applies
	Notes           []string // missing capabilities with the reasons, for `doctor`
}

// FilesFit returns Caps.Fits for a driver whose snapshots are files: snapshots that
// record owners require hosts that can set them.
func FilesFit(name string) string {
	owners := "any owner"
	if os.Geteuid() != 0 {
		owners = "one owner"
	}
	return name + " 1, " + owners + ", " + runtime.GOARCH
}

// Driver creates instances. Its methods may be called concurrently. A driver that
// continues work in the background after a call has returned also implements io.Closer:
// its creator calls Close after the last call, and Close waits for that work to end.
type Driver interface {
	// Name returns the driver's name in records: "direct", "namespace"...
	Name() string

	// Probe performs a cheap real trial of what Create needs. Its error explains to
	// the host's operator why the driver cannot work here.
	Probe(ctx context.Context) (Caps, error)

	// Create makes the instance and returns when the shim has been executed. A Dial
	// then succeeds, although the shim may accept a little later. On error nothing
	// is left behind. The errors are kind.Error: NotFound for an unknown template,
	// Conflict where Dir holds a running instance, Unavailable where the host lacks
	// a resource.
	Create(ctx context.Context, s Spec) (Instance, error)

	// Attach finds the instance that an earlier run of the caller created in s.Dir;
	// of s it reads ID and Dir. It returns kind.NotFound if nothing runs there; what
	// was left of the instance has then been removed.
	Attach(ctx context.Context, s Spec) (Instance, error)

	// List returns the sandboxes of which this driver finds anything, running or not,
	// in the directories root/<id>. A root that does not exist counts as empty.
	List(ctx context.Context, root string) ([]sandbox.ID, error)
}

// Preparer is implemented by a Driver that may have to build something from a template
// before its first instance, which can take longer than callers wait.
type Preparer interface {
	// Prepare returns when what Create needs of the template exists, or when ctx ends; the
	// preparation then continues. Create prepares it, too.
	Prepare(ctx context.Context, s *Spec) error
}

// Instance is one running instance. Its methods may be called concurrently.
type Instance interface {
	// Dial opens a new stream to the shim. It may be called again, also after the
	// previous stream has broken. It returns kind.Unavailable if the shim has ended.
	Dial(ctx context.Context) (net.Conn, error)

	// Done is closed when the shim has ended, also where hostd is not its parent. Where
	// the shim is pid 1 of the instance, every process in it has ended too.
	Done() <-chan struct{}

	// Pause stops every process of the instance, its shim included, until Resume. Both
	// are idempotent and survive restarts of hostd: Attach finds a paused instance
	// paused. Dial and Destroy work on a paused one. They return kind.Unimplemented
	// without Caps.Pause.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error

	// Snapshot fills the empty directory dir for use as Spec.From: with the files of the
	// instance as of one moment and, with memory, its processes. The instance is paused
	// meanwhile and returns to its previous state afterwards; on error dir is empty again.
	// Snapshot returns kind.Unimplemented without Caps.Files, or with memory without
	// Caps.Memory.
	Snapshot(ctx context.Context, dir string, memory bool) error

	// Stats measures the instance; values that cannot be measured are zero.
	Stats(ctx context.Context) (Stats, error)

	// Destroy kills every process in the instance within 5 s and removes all mounts,
	// cgroups and files that Create made. It is idempotent and may be called again
	// after an error.
	Destroy(ctx context.Context) error
}

// Renamer is implemented by an Instance whose host name can be changed while no process of a
// sandbox has run in it.
type Renamer interface {
	// Rename changes the host name, also in the instance's files. It returns
	// kind.Unimplemented where the driver does not support it.
	Rename(hostname string) error
}

// Networked is implemented by an Instance whose network namespace can be entered.
type Networked interface {
	// NetNS opens the namespace; the caller closes it. It returns kind.Unimplemented if it
	// has none, kind.Unavailable if the instance has ended.
	NetNS() (*os.File, error)
}

// Versioned is implemented by an Instance that may run an older build than its driver
// uses for new ones.
type Versioned interface {
	// Fits returns Caps.Fits of that build: the hosts that can use the memory that Snapshot
	// saves. Empty if it cannot be determined.
	Fits() string
}

// Checkpointer is implemented by an Instance that stops by itself while Snapshot saves its
// memory, also when the run of hostd that requested the snapshot has ended.
type Checkpointer interface {
	// Checkpointing reports whether it is stopped for that. Its shim responds afterwards.
	Checkpointing(ctx context.Context) bool
}

// Deprioritizer is implemented by an Instance that can give way to all others on the CPU.
type Deprioritizer interface {
	// CPUTime returns the CPU time that its processes have used since it was created, at
	// the cost of reading one small file. It returns kind.Unimplemented where that is not
	// counted, kind.Unavailable if the instance has ended.
	CPUTime() (time.Duration, error)

	// SetDeprioritized makes its processes run only on CPUs that are otherwise idle, or
	// restores their normal share, which Pause and Snapshot do, too. It is idempotent and
	// survives restarts of hostd; limits apply either way. It returns kind.Unimplemented
	// where the kernel does not support it, kind.Unavailable if the instance has ended.
	SetDeprioritized(bool) error
}

// Stats is the resource usage of an instance.
type Stats struct {
	CPU         time.Duration // since creation
	MemoryBytes uint64        // current, without what the kernel can reclaim at once
	DiskBytes   uint64        // written by the sandbox and still allocated; a lower bound for very many files
	DiskFiles   uint64        // existing files and directories, a lower bound; 0 where they are not files of the host
	Processes   uint32
	OOMKills    uint64 // processes that the kernel killed for lack of memory; available until Destroy
}
