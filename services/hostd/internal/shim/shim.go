package shim

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/reseed"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/procs"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/session"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Config configures a shim. The zero value of a field is its default.
type Config struct {
	Listener net.Listener // socket that hostd connects to; required
	User     string       // user of processes that name none; default: $USER, else the shim's own user
	Workdir  string       // working directory of processes that name none, if it exists; default: the user's home
	OOM      int          // descriptor of the cgroup's memory.events or memory.oom_control; 0: none
	Memory   uint64       // memory limit of the sandbox in MiB; 0: no limit
	Forks    int          // descriptor of the procs file of the cgroup for all processes; 0: none

	Execute time.Duration // maximum time from fork to exec; default: 10 s

	Coalesce time.Duration // how long output of a busy writer may collect in its pipe; 0: it is read at once

	// Rehearse runs a shell at startup that does nothing and is not recorded. It is for an
	// instance of the warm pool: the first real command then finds its files in memory.
	Rehearse bool
}

// shim passes the frames of hostd to the part that each is for.
type shim struct {
	pid1    bool   // every process in the pid namespace belongs to the sandbox
	sandbox string // set by Attach; empty: hostd never connected
	output  *output.Buffer
	network *network.Network
	procs   *procs.Table
}

// flushTimeout is the time for the last frames to hostd, which may not read them.
const flushTimeout = 5 * time.Second

// Run serves hostd until the sandbox has ended, ctx ends, or spooled events cannot be read
// back. Then it kills all remaining processes. It waits for every child of this operating
// system process, so nothing else in the process may start any.
func Run(ctx context.Context, cfg Config) error {
	known := users.New(users.Config{User: cfg.User, Workdir: cfg.Workdir})
	fileServer, err := newFiles(known)
	if err != nil {
		return err
	}
	defer fileServer.Close()
	broken := make(chan error, 1)
	s := &shim{pid1: syscall.Getpid() == 1}
	s.output = output.New(output.Config{Coalesce: cfg.Coalesce, Fail: func(err error) {
		select {
		case broken <- err:
		default: // one error is enough
		}
	}})
	hostd := session.New(session.Config{Sandbox: s, Output: s.output, Accept: accept(fileServer)})
	s.network = network.New(hostd)
	forked := children.New(children.Config{PID1: s.pid1, Forks: cfg.Forks, Execute: cfg.Execute, Score: oom.ChildScore(cfg.Memory)})
	s.procs = procs.New(procs.Config{
		PID1: s.pid1, Users: known, Children: forked, OOM: oom.NewCounter(cfg.OOM), Output: s.output,
		Network: s.network, Files: fileServer, Hostd: hostd,
	})
	if err := forked.Run(); err != nil {
		return err
	}
	if s.pid1 {
		if err := ownConfig(known); err != nil {
			return err
		}
	}
	if cfg.Rehearse {
		go s.procs.Rehearse()
	}
	go hostd.Accept(cfg.Listener)
	select {
	case <-ctx.Done():
	case <-s.procs.Done(): // hostd must learn that the sandbox has ended as requested
		flushing, cancel := context.WithTimeout(ctx, flushTimeout)
		hostd.Flush(flushing)
		cancel()
	case err = <-broken: // the records of all processes will end as lost
	}
	cfg.Listener.Close()
	forked.KillAll()
	return err
}

// accept returns what serves the streams that hostd opens.
func accept(fileServer *files.Server) func(*mux.Stream) {
	return func(st *mux.Stream) {
		if st.Target() == wire.TargetFiles {
			go fileServer.Serve(st)
			return
		}
		go network.ToPort(st)
	}
}

// Attach implements session.Sandbox.
func (s *shim) Attach(a *wire.Attach, install func(frames []byte)) {
	moved := s.sandbox != "" && s.sandbox != a.Sandbox
	s.sandbox = a.Sandbox
	if moved && s.pid1 {
		reseed.Kernel(time.Unix(0, a.Now), a.Seed)
		clearConfig() //nolint:errcheck // the configuration is no longer in use
	}
	s.output.SetLimits(a.Limits)
	s.procs.Attach(a, moved, install)
}

// Handle implements session.Sandbox.
func (s *shim) Handle(t wire.Type, b []byte) error {
	switch t {
	case wire.TypeStart:
		return parsed(b, wire.ParseStart, func(f wire.Start) error { return s.procs.Start(&f) })
	case wire.TypeStdin:
		return parsed(b, wire.ParseStdin, func(f wire.Stdin) error { s.procs.Write(&f); return nil })
	case wire.TypeSignal:
		return parsed(b, wire.ParseSignal, func(f wire.Signal) error { s.procs.Signal(&f); return nil })
	case wire.TypeResize:
		return parsed(b, wire.ParseResize, func(f wire.Resize) error { s.procs.Resize(&f); return nil })
	case wire.TypeResume:
		return parsed(b, wire.ParseMark, s.procs.Resume)
	case wire.TypeAck:
		return parsed(b, wire.ParseMark, s.procs.Ack)
	case wire.TypeForget:
		return parsed(b, wire.ParseForget, func(token string) error { s.procs.Forget(token); return nil })
	case wire.TypeEnd:
		s.procs.End()
	case wire.TypeConclude:
		s.procs.Conclude()
	case wire.TypeReboot:
		s.procs.Reboot()
	case wire.TypeTime:
		return parsed(b, wire.ParseTime, s.setTime)
	case wire.TypeNetwork:
		return parsed(b, wire.ParseNetwork, func(n wire.Network) error { s.network.Apply(n); return nil })
	default:
		return wire.ErrMalformed
	}
	return nil
}

// parsed parses a frame and handles it.
func parsed[T any](b []byte, parse func([]byte) (T, error), handle func(T) error) error {
	f, err := parse(b)
	if err != nil {
		return err
	}
	return handle(f)
}

// setTime sets the kernel's time if the kernel is the sandbox's own.
func (s *shim) setTime(now int64) error {
	if s.pid1 {
		reseed.AdvanceClock(time.Unix(0, now))
	}
	return nil
}
