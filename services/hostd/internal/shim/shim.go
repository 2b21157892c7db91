package shim

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/spawn"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Config says how to run a shim. The zero value of a field is its default.
type Config struct {
	Listener net.Listener // where hostd connects; required
	User     string       // who runs what names no user; default: $USER, else who runs the shim
	Workdir  string       // where what names no directory starts, if it is there; default: the user's home
	OOM      int          // descriptor of the cgroup's memory.events or memory.oom_control; 0: none
	Memory   uint64       // MiB that the sandbox may use; 0: no limit
	Forks    int          // descriptor of the file of the cgroup that all processes are to be in; 0: none

	Execute time.Duration // how long what is started may take to become its program; default: 10 s

	Gather time.Duration // how long the output of one who prints much may gather in its pipe; 0: it is read at once

	// Rehearse runs a shell at once that does nothing, and tells nobody: for a place
	// that waits for its sandbox, whose first command finds what it needs in memory
	// then.
	Rehearse bool
}

// The defaults of wire.Limits.
const (
	defaultSpoolProcess = 4 << 20
	defaultSpoolTotal   = 64 << 20
	defaultGrace        = 2 * time.Second
	defaultGraceMax     = 30 * time.Second
)

// defaultExecute is more than a disk under load takes to read a program.
const defaultExecute = 10 * time.Second

// maxProcesses is how many processes may run or wait to be acked.
const maxProcesses = 16 << 10

// Shim is the state of a sandbox's shim.
type Shim struct {
	cfg  Config
	pid1 bool // everything in the pid namespace is ours
	uid  int  // our own

	passwd, group colonFile
	denied        func() bool // nobody can set a process's groups

	spawner *spawn.Spawner // is the forker's
	spawned chan struct{}  // see nudge
	done    chan struct{}  // closed when the sandbox has ended and all is acked
	broken  chan error     // has what makes it impossible to go on
	files   *files.Server
	forks   chan func() // done by forker
	expends []byte      // expendable
	install sync.Mutex  // one connection after the other
	forking sync.Mutex  // held until who is being forked is in born; taken before mu

	mu        sync.Mutex // guards all below, and all of proc that is not a stream's
	procs     map[string]*proc
	pids      map[int]*proc
	born      map[int]*child // that run, until their processes are known
	spawning  int
	turns     map[int]chan struct{}
	watches   int       // that run
	watched   int       // that ever ran
	bytes     int       // of all spools, in memory
	disk      *disk     // nil: there is only memory
	ackedAt   time.Time // when hostd stored something last, or came
	stalled   bool      // hostd is there and stores nothing
	blocked   int       // streams that wait for room
	looking   bool      // look is due
	pace      pace      // of all output
	recorded  uint64    // bytes of output
	blocks    []*[blockSize]byte
	room      sync.Cond // there may be room in a spool
	session   *session  // nil: hostd is away
	epoch     uint64
	sandbox   string // empty: hostd never came
	env       map[string]string
	limits    wire.Limits
	outcomes  outcomes
	oomKills  uint64
	still     standstill
	proxy     *net.TCPListener // nil: there is no way out
	proxyPort uint16
	trust     trust // what programs are told of the proxy's certificate
	ending    bool
	ended     bool
}

// New makes a shim; Run runs it.
func New(cfg Config) *Shim {
	cfg.Execute = cmp.Or(cfg.Execute, defaultExecute)
	s := &Shim{
		cfg:     cfg,
		pid1:    syscall.Getpid() == 1,
		uid:     syscall.Geteuid(),
		passwd:  colonFile{path: "/etc/passwd"},
		group:   colonFile{path: "/etc/group"},
		denied:  sync.OnceValue(setgroupsDenied),
		spawned: make(chan struct{}, 1),
		done:    make(chan struct{}),
		broken:  make(chan error, 1),
		forks:   make(chan func()),
		expends: expendable(cfg.Memory),
		procs:   make(map[string]*proc),
		pids:    make(map[int]*proc),
		born:    make(map[int]*child),
		turns:   make(map[int]chan struct{}),
	}
	s.room.L = &s.mu
	s.setLimits(wire.Limits{})
	s.oomKills = s.readOOM()
	return s
}

// Run serves hostd until the sandbox has ended, ctx ends, or what it keeps cannot
// be had any more; then it kills what still runs. It waits for every child of this operating system process, so that
// nothing else in it may start any.
func (s *Shim) Run(ctx context.Context) error {
	if err := becomeReaper(s.pid1); err != nil {
		return err
	}
	if err := s.openFiles(); err != nil {
		return err
	}
	defer s.files.Close() //nolint:errcheck // the process ends
	go s.forker()
	go s.reap()
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
	s.killAll()
	return err
}

// fail ends the shim, and with it every record: their ends will say that it was
// lost.
func (s *Shim) fail(err error) {
	select {
	case s.broken <- err:
	default:
	}
}

func (s *Shim) accept() {
	for {
		conn, err := s.cfg.Listener.Accept()
		switch {
		case err == nil:
			go s.serve(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(acceptPause) // out of descriptors: a shim that nobody reaches is lost
		}
	}
}

// setLimits puts l's values, or the defaults, in force.
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

// adopt takes what hostd says of the sandbox.
func (s *Shim) adopt(a *wire.Attach, h *handed) {
	s.epoch, s.sandbox = a.Epoch, a.Sandbox
	if s.disk == nil && a.Limits.Disk > 0 {
		if fd, ok := h.take(); ok {
			s.disk = &disk{fd: fd}
		}
	}
	s.ackedAt, s.stalled = time.Now(), false
	s.env = maps.Clone(a.Env)
	s.setLimits(a.Limits)
	s.room.Broadcast()
}

// forget lets go of a process that hostd has all of, and of the shim itself if
// that was the last after End.
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
	}
}
