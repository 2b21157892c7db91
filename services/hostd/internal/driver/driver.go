// Package driver is how a host makes a place in which processes run, and ends
// it. A driver knows nothing of processes: it starts one shim in the place and
// gives the way to talk to it; the rest is the shim's affair.
//
// # Life of a place
// Create makes it and leaves the shim running, with a listening unix socket as
// its fd 3. The shim outlives the process that called Create; whoever comes
// next finds the place with List and Attach, because all that must be known is
// in Spec.Dir. Wherever Create or Destroy is cut off by a kill, List still
// names what is left, and Attach or Destroy finish it.
//
// # Trust
// What comes out of Dial was written inside the place and is hostile input.
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

// Spec says what to make. Everything but ID, Dir and ShimPath may be zero.
type Spec struct {
	ID       sandbox.ID        // the instance
	Hostname string            // where a driver gives one; empty: ID
	Template string            // its name in records and errors; what counts is Root
	Env      map[string]string // the shim's environment on top of PATH, HOME, USER, LOGNAME, SHELL, LANG; nothing of the host's is in it

	// Root is the tree that the place's root is made from: an absolute path of a
	// directory in one that is shut to all but hostd. It is only read, and serves
	// any number of places at a time. Where hostd is root of the machine its files
	// have the uids and gids that they are to have inside; elsewhere they all
	// belong to hostd's user. /dev, /proc, /sys, /tmp, /etc and /run are
	// directories in it. Empty: the host template, made of the host's own files.
	Root string
	Sudo bool // programs in Root that are set-uid work: who runs in the place may become its root. Where Root is empty, `user` has a sudo that the driver brings

	CPUMilli  uint32 // thousandths of a CPU; 0: no limit
	MemoryMiB uint32 // 0: no limit
	PIDs      uint32 // processes and threads; 0, or more than the driver's own bound: that
	DiskMiB   uint32 // 0: no limit. A driver that cannot limit the disk bounds the size of one file
	OpenFiles uint32 // of each process; 0: 65536

	// From is a directory that Instance.Snapshot filled, of this driver or of one with
	// the same Caps.FileFits: the place begins with the files in it, and with the
	// processes if it holds the memory; then its shim speaks of the processes of the
	// sandbox that the snapshot was made of. It is only read, and may serve any number of places at a time; it
	// must stay while one of them lives. Root and Sudo are to be those of the sandbox
	// that it was made of.
	From string

	// Volumes are directories of the host that the place sees at paths of its own,
	// in an order in which they can be mounted. They belong to the caller, who keeps
	// them as long as the place lives, and several places may see one at once. Where
	// hostd is root of the machine their files have the uids and gids that they have
	// inside. Only with Caps.Volumes.
	Volumes []Volume

	// Dir is the sandbox's own directory on the host, made by the caller with
	// mode 0700 and absolute; of any length. The driver's own files in it have
	// the names in Files; Destroy removes those and no others.
	Dir string

	ShimPath string   // a static or dynamic ELF binary, not a script; need not be visible inside
	ShimArgs []string // its arguments, without argv[0]

	// Cgroup hands the shim two more descriptors: OOMFd and ForksFd.
	Cgroup bool
}

// Volume is a directory Source of the host that is seen at Path: both absolute and
// clean. Path is made where it is not there.
type Volume struct{ Source, Path string }

// HostName is Hostname, or ID if that is empty.
func (s *Spec) HostName() string {
	if s.Hostname != "" {
		return s.Hostname
	}
	return string(s.ID)
}

// MaxPIDs is the bound of its processes where the driver's own is most.
func (s *Spec) MaxPIDs(most uint32) uint32 {
	if s.PIDs == 0 {
		return most
	}
	return min(s.PIDs, most)
}

// The descriptors that a shim inherits besides the standard three, of which
// stdin and stdout are /dev/null and stderr is a log in Spec.Dir.
const (
	ListenFd = 3 // a listening unix socket

	// OOMFd is a file whose line "oom_kill N" counts the processes of the sandbox
	// that the kernel killed because Spec.MemoryMiB was used up; an empty file where
	// nobody counts.
	OOMFd = 4

	// ForksFd is the file of a cgroup that bounds processes to Spec.PIDs. A thread of
	// the shim that writes "0" to it is in that group, and so is what it forks; the
	// shim's others are not, so that the shim gets a thread where the sandbox gets no
	// process. An empty file where there is none.
	ForksFd = 5
)

// Files are the names that a driver uses in a Spec.Dir, in the order in which
// they are removed. All others are the caller's.
func Files() []string {
	// The state goes last: as long as anything is left, List must find it.
	return []string{"ns", "gv", "vm", "disk", "home", "still", "qmp.sock", "api.sock", "vsock.sock", LogFile, "shim.sock", "state.json.tmp", "state.json"}
}

// What is bounded also where Spec says nothing.
const (
	MaxProcesses     = 4096 // threads, too
	DefaultOpenFiles = 1 << 16
)

// ShimThreads is how many threads a shim may have where its sandbox's processes use up
// Spec.PIDs. A shim with a hard limit of its user's processes that is above the soft one
// has the difference to itself.
const ShimThreads = 64

// OOMScore is the oom_score_adj of all that runs in a place: where the memory of the host
// itself is used up, what is in sandboxes ends before what serves them, and the largest
// of that first. What a shim starts has a higher one, and a browser may give its own parts
// a higher one still.
const OOMScore = 200

// Caps is what a driver can do on this host, as Probe found it.
type Caps struct {
	Isolation   string   // "none", "process", "kernel" or "machine": what stands between a sandbox and the host
	Rootless    bool     // works, or would work, without root
	MemoryLimit bool     // Spec.MemoryMiB holds for the sandbox as a whole
	RootEnds    bool     // root in a sandbox can kill the shim, and with it the sandbox
	WholeOOM    bool     // a sandbox that uses up Spec.MemoryMiB ends; else one of its processes does
	PidsLimit   bool     // Spec.PIDs holds for the sandbox as a whole
	CPULimit    bool     // Spec.CPUMilli holds
	DiskLimit   bool     // Spec.DiskMiB holds for all that the sandbox writes together
	Slow        bool     // Create takes so long that it is worth having places ready
	Pause       bool     // Instance.Pause works
	Files       bool     // Instance.Snapshot keeps files
	Memory      bool     // Instance.Snapshot keeps the memory, too
	Volumes     bool     // Spec.Volumes are seen
	CPUMilli    uint32   // of a sandbox for which Spec has none; 0: it has no limit then
	MemoryMiB   uint32   // the same
	Fits        string   // whose snapshots it can use: those of this driver on a host where it says the same; empty: this host's only
	FileFits    string   // the same of snapshots without memory, of any driver that says so; empty: Fits tells
	Notes       []string // what is missing and why, for `doctor`
}

// FilesFit is Caps.Fits of a driver whose snapshots are files: those that keep
// owners are for hosts that can give them.
func FilesFit(name string) string {
	owners := "any owner"
	if os.Geteuid() != 0 {
		owners = "one owner"
	}
	return name + " 1, " + owners + ", " + runtime.GOARCH
}

// Driver makes places. Its methods may be called at the same time. One that goes on with
// something when the call that began it has returned is an io.Closer, too: who made it
// closes it after the last call, and that is over then.
type Driver interface {
	// Name is the driver's name in records: "direct", "namespace"...
	Name() string

	// Probe makes a cheap real trial of what Create needs. Its error says why
	// the driver cannot work here, in words for the host's owner.
	Probe(ctx context.Context) (Caps, error)

	// Create makes the place and returns when the shim has been executed; a
	// Dial then succeeds, although the shim may accept a little later. On error
	// nothing is left behind. The errors are kind.Error: NotFound for an
	// unknown template, Conflict where Dir holds a living place, Unavailable
	// where the host is short of something.
	Create(ctx context.Context, s Spec) (Instance, error)

	// Attach finds the place that an earlier life of the caller created in
	// s.Dir; of s it needs ID and Dir. kind.NotFound if nothing lives there: what
	// was left of it has then been removed.
	Attach(ctx context.Context, s Spec) (Instance, error)

	// List names the sandboxes of which this driver has anything, living or
	// not, in the directories root/<id>. A root that does not exist is empty.
	List(ctx context.Context, root string) ([]sandbox.ID, error)
}

// Preparing is a Driver that may have to make something of a template before the first place
// of it, which can take longer than anybody waits.
type Preparing interface {
	// Prepare returns when what Create needs of the template is there, or with ctx: it goes
	// on being made then. Create makes it, too.
	Prepare(ctx context.Context, s *Spec) error
}

// Instance is one living place. Its methods may be called at the same time.
type Instance interface {
	// Dial opens a fresh stream to the shim. It may be called again, also
	// after the stream before has broken. kind.Unavailable if the shim is gone.
	Dial(ctx context.Context) (net.Conn, error)

	// Done is closed when the shim is gone, whoever is its parent. Where the
	// shim is pid 1 of its place, every process in the place is gone too.
	Done() <-chan struct{}

	// Pause stops every process of the place, its shim too, until Resume. Both are
	// idempotent, and hold over lives of hostd: Attach finds a paused place
	// paused. Dial and Destroy work on a paused one. kind.Unimplemented without
	// Caps.Pause.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error

	// Snapshot fills dir, which is empty, with what Spec.From wants: the files of
	// the place as they are at one moment and, with memory, its processes. The
	// place stands still meanwhile and is afterwards as it was, paused or not; on
	// error dir is empty again. kind.Unimplemented without Caps.Files, or with
	// memory without Caps.Memory.
	Snapshot(ctx context.Context, dir string, memory bool) error

	// Stats measures the place; what cannot be told is zero.
	Stats(ctx context.Context) (Stats, error)

	// Destroy kills everything in the place within 5 s and removes all mounts,
	// cgroups and files that Create made. It is idempotent; after an error it
	// may be called again.
	Destroy(ctx context.Context) error
}

// Netted is an Instance whose network namespace others may enter.
type Netted interface {
	// NetNS opens it; it is the caller's to close. kind.Unimplemented where there is
	// none, kind.Unavailable if the place is gone.
	NetNS() (*os.File, error)
}

// Built is an Instance that may run an older build than its driver would begin another
// one with.
type Built interface {
	// Fits is Caps.Fits of that build: it tells who can use the memory that Snapshot
	// keeps. Empty where that cannot be told.
	Fits() string
}

// Keeping is an Instance that stands still by itself while Snapshot keeps its memory, also
// when the life of hostd that asked for that is over.
type Keeping interface {
	// Keeping reports whether it does. Its shim answers when that is done.
	Keeping(ctx context.Context) bool
}

// Yielding is an Instance that can be told to let all others go first.
type Yielding interface {
	// Burned is the CPU time that its processes have used since it was made, at the
	// price of one small file. kind.Unimplemented where nobody counts,
	// kind.Unavailable if the place is gone.
	Burned() (time.Duration, error)

	// Yield has its processes run where nobody else wants to, or again as an equal of
	// others, which they are after Pause and Snapshot, too. It is idempotent and holds
	// over lives of hostd; limits hold either way.
	// kind.Unimplemented where the kernel cannot do that, kind.Unavailable if the
	// place is gone.
	Yield(bool) error
}

// Stats is what a place uses.
type Stats struct {
	CPU         time.Duration // since it was made
	MemoryBytes uint64        // now, without what the kernel can take back at once
	DiskBytes   uint64        // that it wrote and that are there; of very many files at least so many
	DiskFiles   uint64        // that are there, and directories, at least so many; 0 where they are none of the host's
	Processes   uint32
	OOMKills    uint64 // processes that the kernel killed for want of memory; told until Destroy
}
