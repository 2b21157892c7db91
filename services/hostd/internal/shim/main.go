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

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/services/hostd/internal/deaf"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm/vminit"
	"github.com/millrace/millrace/services/hostd/internal/serial"
)

// ListenFD is the descriptor at which a shim finds its listening socket.
const ListenFD = 3

// Main runs a shim as a process of its own and gives its exit code. Its
// listening unix socket is descriptor ListenFD. Of its environment it uses PATH,
// HOME and USER: those of whoever runs what names no user. Arguments: -user NAME
// instead of USER, with his own home; -workdir DIR where what names no directory
// starts, if it is there; -oom-fd N is an open memory.events or memory.oom_control of the
// sandbox's cgroup, and -memory its limit; -forks-fd N is what driver.ForksFd is; -serial IN,OUT are two descriptors of a stream to hostd
// (package serial) instead of a socket, and -pack what package vminit wants to tell a
// guest's files by it; -gather D lets the output of one who prints
// much gather for so long: for a kernel whose system calls are dear; -execute is
// Config.Execute, and -rehearse Config.Rehearse.
func Main(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("shim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	user := flags.String("user", "", "who runs what names no user; default: $USER")
	workdir := flags.String("workdir", "", "where what names no directory starts; default: the user's home")
	oom := flags.Int("oom-fd", 0, "an open memory.events or memory.oom_control")
	memory := flags.Uint64("memory", 0, "the sandbox's limit in MiB; 0: it has none")
	forks := flags.Int("forks-fd", 0, "the file of the cgroup of the processes; anything else is not used")
	stream := flags.String("serial", "", "two descriptors, IN,OUT, instead of a listening socket")
	pack := flags.String(strings.TrimPrefix(vminit.PackFlag, "-"), "", "with -serial, two directories of a guest: see package vminit")
	gather := flags.Duration("gather", 0, "how long the output of one who prints much may gather")
	execute := flags.Duration("execute", 0, "how long a process may take to become its program; default: 10s")
	rehearse := flags.Bool("rehearse", false, "run a command at once that nobody asked for")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 { // a role that this program does not know
		fmt.Fprintf(stderr, "shim: %q is no argument of a shim\n", flags.Arg(0)) //nolint:errcheck // nobody is left to tell
		return 2
	}
	closeInherited(ListenFD)
	ln, err := listen(*stream, *pack)
	if err == nil {
		err = deaf.Install()
	}
	if err != nil {
		fmt.Fprintln(stderr, "shim:", err) //nolint:errcheck // nobody is left to tell
		return 1
	}
	if *oom == 0 {
		*oom = openOOM()
	}
	ctx, cancel := terminated()
	defer cancel()
	cfg := Config{Listener: ln, User: *user, Workdir: *workdir, OOM: *oom, Memory: *memory, Forks: *forks,
		Execute: *execute, Gather: *gather, Rehearse: *rehearse}
	if err := New(cfg).Run(ctx); err != nil {
		fmt.Fprintln(stderr, "shim:", err) //nolint:errcheck // nobody is left to tell
		return 1
	}
	return 0
}

// listen is where hostd connects: at a stream, if there is one.
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
		return serial.Listen(pair), nil
	}
	fd, err := strconv.ParseUint(out, 10, 16)
	if err != nil {
		return nil, err
	}
	aside, err := vminit.Aside(pack, uintptr(fd))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", vminit.PackFlag, err)
	}
	return serial.ListenAside(pair, aside), nil
}

func serialPair(in, out string) (p serial.Pair, err error) {
	if p.In, err = descriptor(in); err == nil {
		p.Out, err = descriptor(out)
	}
	return p, err
}

// descriptor opens an inherited descriptor anew, because the runtime already waits
// for events of the standard three; no child gets either.
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

// listener takes over the inherited socket; no child gets it.
func listener(fd uintptr) (net.Listener, error) {
	syscall.CloseOnExec(int(fd))
	f := os.NewFile(fd, "listener")
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close() //nolint:errcheck // the listener has its own
	ln, err := net.FileListener(f)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		ln, err = listenOther(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path is hostd's
	}
	return ln, nil
}

// terminated ends with SIGTERM, but not as pid 1: then only who runs in the place
// can have sent it, and hostd kills. The other signals do nothing: those that a
// terminal or a closing session sends, and those of a fault, by which this
// program would end when somebody sends them, who is its equal inside (package
// deaf has the rest). They are caught, not ignored, because children inherit what
// is ignored.
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
