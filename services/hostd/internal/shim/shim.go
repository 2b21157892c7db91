package shim

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
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

// The defaults of wire.Limits.
const (
	defaultSpoolProcess = 4 << 20
	defaultSpoolTotal   = 64 << 20
	defaultGrace        = 2 * time.Second
	defaultGraceMax     = 30 * time.Second
)

// maxProcesses is the maximum number of processes that run or have unacknowledged events.
const maxProcesses = 16 << 10

// Shim is the state of a sandbox's shim.
type Shim struct {
	cfg  Config
	pid1 bool // every process in the pid namespace belongs to the sandbox

	users    *users.Database
	children *children.Children
	oom      *oom.Counter
	network  *network.Network
	files    *files.Server

	done      chan struct{} // closed when the sandbox has ended and everything is acknowledged
	broken    chan error    // holds the fatal error that ends Run
	sessionMu sync.Mutex    // serializes new connections

	mu           sync.Mutex // guards all below, and all of proc except what a stream guards
	procs        map[string]*proc
	spawning     int
	startSlots   map[int]chan struct{}
	watchCount   int       // number that runs
	watchTotal   int       // number ever started
	bytes        int       // in memory, of all spools
	disk         *disk     // nil: the spools are in memory only
	ackedAt      time.Time // time of the last acknowledgement or connection
	stalled      bool      // hostd is connected but stores nothing
	blocked      int       // streams that wait for space
	checkPending bool      // a call of checkBlocked is scheduled
	pace         pace      // of all output
	recorded     uint64    // bytes of output
	blocks       []*[blockSize]byte
	readable     sync.Cond // signaled when a blocked stream may be able to read
	session      *session  // nil: hostd is not connected
	epoch        uint64
	sandbox      string // empty: hostd never connected
	env          map[string]string
	limits       wire.Limits
	outcomes     outcomes
	pauses       pauseClock
	ending       bool
	ended        bool
}

// New returns a shim. Run starts it.
func New(cfg Config) *Shim {
	pid1 := syscall.Getpid() == 1
	s := &Shim{
		cfg:        cfg,
		pid1:       pid1,
		users:      users.New(users.Config{User: cfg.User, Workdir: cfg.Workdir}),
		children:   children.New(children.Config{PID1: pid1, Forks: cfg.Forks, Execute: cfg.Execute, Score: oom.ChildScore(cfg.Memory)}),
		oom:        oom.NewCounter(cfg.OOM),
		done:       make(chan struct{}),
		broken:     make(chan error, 1),
		procs:      make(map[string]*proc),
		startSlots: make(map[int]chan struct{}),
	}
	s.network = network.New(s)
	s.readable.L = &s.mu
	s.setLimits(wire.Limits{})
	return s
}

// Run serves hostd until the sandbox has ended, ctx ends, or spooled events cannot be read
// back. Then it kills all remaining processes. It waits for every child of this operating
// system process, so nothing else in the process may start any.
func (s *Shim) Run(ctx context.Context) error {
	if err := s.openFiles(); err != nil {
		return err
	}
	defer s.files.Close() //nolint:errcheck // the process ends
	if err := s.children.Run(); err != nil {
		return err
	}
	if s.cfg.Rehearse {
		go s.rehearse()
	}
	go s.accept()
	var err error
	select {
	case <-ctx.Done():
	case <-s.done:
	case err = <-s.broken:
	}
	s.cfg.Listener.Close() //nolint:errcheck // the process ends
	s.children.KillAll()
	return err
}

// fail stops the shim. The records of all its processes will end as lost.
func (s *Shim) fail(err error) {
	select {
	case s.broken <- err:
	default:
	}
}

const acceptPause = 20 * time.Millisecond

func (s *Shim) accept() {
	for {
		conn, err := s.cfg.Listener.Accept()
		switch {
		case err == nil:
			go s.serve(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptPause) // out of descriptors: a shim that cannot be reached is lost
		}
	}
}

// setLimits applies l, with defaults for zero fields.
func (s *Shim) setLimits(l wire.Limits) {
	if l.SpoolProcess == 0 {
		l.SpoolProcess = defaultSpoolProcess
	}
	if l.SpoolTotal == 0 {
		l.SpoolTotal = defaultSpoolTotal
	}
	if l.Grace == 0 {
		l.Grace = defaultGrace
	}
	if l.GraceMax == 0 {
		l.GraceMax = defaultGraceMax
	}
	if s.ending {
		l.Grace, l.GraceMax = endGrace, endGrace
	}
	s.limits = l
	s.setPace()
	if s.disk != nil {
		s.disk.limit = l.Disk
	}
}

// applyAttach applies the sandbox's settings in Attach.
func (s *Shim) applyAttach(a *wire.Attach, h *rightsConn) {
	s.epoch, s.sandbox = a.Epoch, a.Sandbox
	if s.disk == nil && a.Limits.Disk > 0 {
		if fd, ok := h.take(); ok {
			s.disk = &disk{fd: fd}
		}
	}
	s.ackedAt, s.stalled = time.Now(), false
	s.env = maps.Clone(a.Env)
	s.setLimits(a.Limits)
	s.readable.Broadcast()
}

// forget removes a process whose events hostd has all stored. After End, removing the last
// one also ends the shim.
func (s *Shim) forget(p *proc) {
	delete(s.procs, p.token)
	if s.ended && len(s.procs) == 0 {
		s.close()
	}
}

func (s *Shim) freeExtent(x extent) { s.disk.free(x) }

func (s *Shim) close() {
	select {
	case <-s.done:
	default:
		close(s.done)
		s.children.Close()
	}
}
