//go:build linux

// Package vminit is the part of the microvm driver inside the guest: its first process,
// which turns the bare kernel into a sandbox and becomes its shim. It is
// part of the shim's binary and imports little.
//
// The kernel finds in its first file system the binary (ShimFile), this package's
// Boot, and the kernel modules that it needs. A guest whose Boot has no Spec
// waits for one on its serial port, so that many guests can be made from the memory
// of a waiting one. Until then it has no data of any sandbox.
package vminit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace/nsinit"
	"github.com/millrace/millrace/services/hostd/internal/reseed"
)

// Names in the guest's first file system.
const (
	ShimFile = "shim"
	BootFile = "boot.json"
	Modules  = "modules" // directory
)

// Boot is the boot configuration in the guest's first file system.
type Boot struct {
	Modules []string // files in Modules, in load order
	VSock   uint32   // port on which the shim listens; 0: it uses the serial port
	Trial   bool     // whether to switch off at once
	Spec    *Spec    // nil: the serial port delivers it
}

// Spec describes the sandbox that the guest is to become.
type Spec struct {
	Hostname string
	Argv     []string // of the shim
	Env      []string
	PIDs     int    // maximum number of processes
	Files    uint64 // maximum number of open files per process
	DiskMiB  int    // maximum size of written files; 0: half of the memory
	Sudo     bool   // set-uid programs of the template work
	Written  bool   // files that another guest wrote follow on the serial port
	Now      int64  // the host's time, in nanoseconds since 1970
	Seed     []byte // random bytes from the host; see package reseed
}

// PackFiles is the value of PackFlag that a guest's shim gets.
const PackFiles = "6,7"

const (
	listenFd  = 3 // a listener, if any; otherwise the shim uses stdin and stdout
	oomFd     = 4
	forksFd   = 5
	writtenFd = 6 // PackFiles, where the shim uses stdin and stdout
	groupsFd  = 7

	newRoot = "/newroot"
)

// Init turns this process, the first of a guest, into the shim. It returns only on
// error; all that remains then is to switch off.
func Init(args []string) error {
	err := begin(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "millrace guest:", err)
	}
	powerOff()
	return err
}

func powerOff() {
	// A reboot, since QEMU is configured to exit at one, and without ACPI there is no
	// power to switch off.
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) //nolint:errcheck // the caller ends, and the kernel with it
}

func begin(args []string) error {
	if len(args) > 0 || os.Getpid() != 1 {
		return errors.New("must be the first process of a guest")
	}
	b, err := os.ReadFile("/" + BootFile)
	if err != nil {
		return err
	}
	var boot Boot
	if err := json.Unmarshal(b, &boot); err != nil {
		return err
	}
	if boot.Trial {
		return nil
	}
	fd, err := boot.devices()
	if err != nil {
		return err
	}
	shim, err := unix.Open("/"+ShimFile, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if boot.Spec == nil {
		if boot.Spec, err = receive(port(fd)); err != nil {
			return err
		}
	}
	return boot.Spec.become(shim, fd, boot.VSock != 0)
}

// become makes the guest the sandbox of the Spec.
func (s *Spec) become(shim, fd int, listens bool) error {
	reseed.Kernel(time.Unix(0, s.Now), s.Seed)
	if err := s.files(port(fd)); err != nil {
		return err
	}
	written, err := unix.Open(upper, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, step := range []func() error{s.root, s.view, s.names, pivot, nsinit.MountConfig, loopback} {
		if err := step(); err != nil {
			return err
		}
	}
	g, err := s.group()
	if err != nil {
		return err
	}
	g.written = written
	return s.execute(shim, fd, g, listens)
}

// devices waits for the port and the disk.
func (b *Boot) devices() (port int, err error) {
	for _, m := range []mount{
		{"devtmpfs", "/dev", "devtmpfs", 0, "mode=0755"},
		{"proc", "/proc", "proc", noExec, ""},
	} {
		if err := m.make(); err != nil {
			return 0, err
		}
	}
	for _, name := range b.Modules {
		if err := load(filepath.Join("/", Modules, name)); err != nil {
			return 0, err
		}
	}
	if err := await("/dev/vda"); err != nil {
		return 0, err
	}
	if err := (mount{"/dev/vda", "/lower", "squashfs", unix.MS_RDONLY, ""}).make(); err != nil {
		return 0, err
	}
	if b.VSock != 0 {
		return listen(b.VSock)
	}
	if err := await("/dev/vport*"); err != nil {
		return 0, err
	}
	ports, err := filepath.Glob("/dev/vport*")
	if err != nil {
		return 0, err
	}
	return unix.Open(ports[0], unix.O_RDWR|unix.O_CLOEXEC, 0)
}

// listen opens the socket that the host reaches through the machine's vsock.
func listen(port uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err != nil {
		return 0, err
	}
	return fd, unix.Listen(fd, 128)
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "load", Path: path, Err: err}
	}
	return nil
}

// await waits until the kernel has found a device.
func await(pattern string) error {
	const tries, pause = 30_000, time.Millisecond
	for range tries {
		if found, err := filepath.Glob(pattern); err != nil || len(found) > 0 {
			return err
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("%s did not appear", pattern)
}

const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) make() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return &os.PathError{Op: "mount " + m.fstype, Path: m.target, Err: err}
	}
	return nil
}

// upper is the directory of written files.
const upper = "/rw/upper"

// files mounts memory for written files, and unpacks there what another guest wrote.
func (s *Spec) files(from port) error {
	size := "size=50%"
	if s.DiskMiB > 0 {
		size = fmt.Sprintf("size=%dm", s.DiskMiB)
	}
	if err := (mount{"tmpfs", "/rw", "tmpfs", 0, "mode=0755," + size}).make(); err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir("/rw/work", 0o755)); err != nil || !s.Written {
		return err
	}
	return take(from, upper)
}

// root mounts the directory of written files over the template.
func (s *Spec) root() error {
	var flags uintptr = unix.MS_NODEV
	if !s.Sudo {
		flags |= unix.MS_NOSUID
	}
	return mount{"overlay", newRoot, "overlay", flags, "lowerdir=/lower,workdir=/rw/work,upperdir=" + upper}.make()
}

func (s *Spec) view() error {
	for _, m := range []mount{
		{"proc", newRoot + "/proc", "proc", noExec, ""},
		{"sysfs", newRoot + "/sys", "sysfs", noExec | unix.MS_RDONLY, ""},
		{"devtmpfs", newRoot + "/dev", "devtmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0755"},
		{"devpts", newRoot + "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"tmpfs", newRoot + "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	} {
		if err := m.make(); err != nil {
			return err
		}
	}
	os.Chmod(newRoot+"/tmp", 0o1777) //nolint:errcheck // the template may lack it
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		os.Symlink(to, newRoot+"/dev/"+name) //nolint:errcheck // it may exist
	}
	os.Remove(newRoot + "/dev/ptmx")
	os.Symlink("pts/ptmx", newRoot+"/dev/ptmx") //nolint:errcheck // see above
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		os.Chmod(newRoot+"/dev/"+n, 0o666) //nolint:errcheck // the kernel created them with this mode
	}
	return nil
}

// names writes the files that a template cannot have.
func (s *Spec) names() error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return err
	}
	for name, body := range map[string]string{
		"hostname":    s.Hostname + "\n",
		"hosts":       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + s.Hostname + "\n",
		"resolv.conf": "# There is no network but the loopback.\n",
	} {
		path := filepath.Join(newRoot, "etc", name)
		os.Remove(path)
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func pivot() error {
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return os.NewSyscallError("move the root", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// group has the descriptors of the shim's cgroup: the file that counts processes killed for
// lack of memory, and the file by which a thread joins the group where processes are
// counted, which excludes the shim's other threads; see cgroup.Limits. And PackFiles.
type group struct{ events, forks, written, all int }

// group creates the cgroups and moves this process into them.
func (s *Spec) group() (g group, err error) {
	const (
		top          = "/sys/fs/cgroup"
		sandboxGroup = top + "/box"
		forks        = sandboxGroup + "/forks"
	)
	if err := (mount{"cgroup2", top, "cgroup2", noExec, ""}).make(); err != nil {
		return g, err
	}
	for _, dir := range []string{sandboxGroup, forks} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return g, err
		}
	}
	for _, w := range []struct{ file, text string }{
		{top + "/cgroup.subtree_control", "+memory +pids"},
		{forks + "/cgroup.type", "threaded"},
		{sandboxGroup + "/cgroup.subtree_control", "+pids"},
		{sandboxGroup + "/pids.max", strconv.Itoa(s.PIDs + driver.ShimThreads)},
		{forks + "/pids.max", strconv.Itoa(s.PIDs + 1)}, // and the thread
		{sandboxGroup + "/cgroup.procs", "1"},
	} {
		if err := os.WriteFile(w.file, []byte(w.text), 0); err != nil {
			return g, err
		}
	}
	if g.events, err = unix.Open(sandboxGroup+"/memory.events", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return g, err
	}
	if g.forks, err = unix.Open(forks+"/cgroup.threads", unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		return g, err
	}
	g.all, err = unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return g, err
}

// execute executes the shim: stdin and stdout are the port, stderr the console.
func (s *Spec) execute(shim, port int, g group, listens bool) error {
	files := []dup{{port, 0}, {port, 1}, {g.events, listenFd}, {g.events, oomFd}, {g.forks, forksFd}, {g.written, writtenFd}, {g.all, groupsFd}}
	if listens {
		files = []dup{{port, listenFd}, {g.events, oomFd}, {g.forks, forksFd}}
	}
	for what, most := range map[int]uint64{unix.RLIMIT_NOFILE: s.Files, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return replace(shim, s.Argv, s.Env, files)
}
