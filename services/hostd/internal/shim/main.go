package shim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/fifolink"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
	"github.com/millrace/millrace/services/hostd/internal/sigguard"
)

// ListenFD is the descriptor of a shim's listening socket.
const ListenFD = 3

// Main runs a shim as a process of its own and returns its exit code. Descriptor ListenFD
// is its listening unix socket. Of its environment it uses PATH, HOME and USER: those of
// the default user. Arguments:
//
//	-user NAME      default user instead of USER, with its own home
//	-workdir DIR    default working directory, if it exists
//	-oom-fd N       open memory.events or memory.oom_control of the sandbox's cgroup
//	-memory MIB     memory limit of that cgroup
//	-forks-fd N     see driver.ForksFd
//	-serial IN,OUT  two descriptors of a stream to hostd (package fifolink) instead of a socket
//	-pack A,B       directories of a guest's files; see package vminit
//	-coalesce D     Config.Coalesce: for a kernel with slow system calls
//	-execute D      Config.Execute
//	-rehearse       Config.Rehearse
func Main(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("shim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	user := flags.String("user", "", "user of processes that name none (default $USER)")
	workdir := flags.String("workdir", "", "working directory of processes that name none (default the user's home)")
	oomFd := flags.Int("oom-fd", 0, "descriptor of the cgroup's memory.events or memory.oom_control")
	memory := flags.Uint64("memory", 0, "memory limit in MiB (default 0, no limit)")
	forks := flags.Int("forks-fd", 0, "descriptor of the procs file of the processes' cgroup; others are ignored")
	stream := flags.String("serial", "", "descriptors IN,OUT of a stream, instead of a listening socket")
	pack := flags.String(strings.TrimPrefix(vminit.PackFlag, "-"), "", "with -serial, two directories of a guest (see package vminit)")
	coalesce := flags.Duration("coalesce", 0, "how long output of a busy writer may collect in its pipe (default 0)")
	execute := flags.Duration("execute", 0, "maximum time from fork to exec (default 10s)")
	rehearse := flags.Bool("rehearse", false, "run a shell at startup to warm the caches")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 { // a role that this program does not have
		fmt.Fprintf(stderr, "shim: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	closeInherited(ListenFD)
	ln, err := listen(*stream, *pack)
	if err == nil {
		err = sigguard.Install()
	}
	if err != nil {
		fmt.Fprintln(stderr, "shim:", err)
		return 1
	}
	if *oomFd == 0 {
		*oomFd = oom.Open()
	}
	ctx, cancel := terminated()
	defer cancel()
	cfg := Config{Listener: ln, User: *user, Workdir: *workdir, OOM: *oomFd, Memory: *memory, Forks: *forks,
		Execute: *execute, Coalesce: *coalesce, Rehearse: *rehearse}
	if err := Run(ctx, cfg); err != nil {
		fmt.Fprintln(stderr, "shim:", err)
		return 1
	}
	return 0
}

// listen returns where hostd connects: a stream, if one is given, or the inherited socket.
func listen(stream, pack string) (net.Listener, error) {
	if stream == "" {
		return listener(ListenFD)
	}
	in, out, _ := strings.Cut(stream, ",")
	pair, err := serialPair(in, out)
	if err != nil {
		return nil, fmt.Errorf("-serial %q: %w", stream, err)
	}
	if pack == "" {
		return fifolink.Listen(pair), nil
	}
	fd, err := strconv.ParseUint(out, 10, 16)
	if err != nil {
		return nil, err
	}
	aside, err := vminit.Aside(pack, uintptr(fd))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", vminit.PackFlag, err)
	}
	return fifolink.ListenAside(pair, aside), nil
}

func serialPair(in, out string) (p fifolink.Pair, err error) {
	if p.In, err = descriptor(in); err == nil {
		p.Out, err = descriptor(out)
	}
	return p, err
}

// descriptor duplicates an inherited descriptor, because the runtime already polls the
// standard three. No child inherits either.
func descriptor(n string) (*os.File, error) {
	fd, err := strconv.ParseUint(n, 10, 16)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(int(fd))
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, ListenFD)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(own, true); err != nil { // no thread waits for it
		return nil, err
	}
	return os.NewFile(uintptr(own), "serial"), nil
}

// listener takes over the inherited socket. No child inherits it.
func listener(fd uintptr) (net.Listener, error) {
	syscall.CloseOnExec(int(fd))
	f := os.NewFile(fd, "listener")
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	ln, err := net.FileListener(f)
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EPROTONOSUPPORT) { // the vsock of a guest
		ln, err = vsock.FileListener(f)
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path is hostd's
	}
	return ln, nil
}

// terminated returns a context that ends with SIGTERM, except as pid 1: there only a
// process of the sandbox can have sent it, and hostd stops the shim with SIGKILL. Other
// signals are ignored: those of a terminal or an ending session, and fault signals, which
// would end this program when a process with the same user sends them (package sigguard handles
// the rest). They are caught, not set to SIG_IGN, because children inherit that.
func terminated() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGABRT,
		syscall.Signal(16)) // SIGSTKFLT, which only Linux has
	go func() {
		for sig := range ch {
			if sig == syscall.SIGTERM && os.Getpid() != 1 {
				cancel()
			}
		}
	}()
	return ctx, cancel
}
