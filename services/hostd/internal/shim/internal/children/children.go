package children

import (
	"cmp"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
	"github.com/millrace/millrace/services/hostd/internal/spawn"
)

// Config configures Children. The zero value of a field is its default.
type Config struct {
	PID1    bool          // the shim is pid 1: every process in the pid namespace belongs to the sandbox
	Forks   int           // descriptor of the procs file of the cgroup for all processes; 0: none
	Execute time.Duration // maximum time from fork to exec; default: 10 s
	Score   oom.Score     // of each child
}

// defaultExecute is longer than a loaded disk takes to read a program.
const defaultExecute = 10 * time.Second

// Children are the children of this operating system process.
type Children struct {
	cfg     Config
	spawner *spawn.Spawner // used only by the goroutine of fork
	forks   chan func()    // run by fork
	added   chan struct{}  // see wakeReaper
	done    chan struct{}  // closed by Close
	forkMu  sync.Mutex     // held until a forked child is in running; taken before mu

	mu      sync.Mutex // guards running and, except PID, all of each Child
	running map[int]*Child
}

// Child is a process that was started, also after its end.
type Child struct {
	c          *Children
	PID        int
	report     func(syscall.WaitStatus) // nil: nothing owns the child yet
	ended      bool
	status     syscall.WaitStatus
	groupEmpty bool // it has ended, and its process group is empty; see groupRemains
}

// New returns children without any. Run starts to serve them.
func New(cfg Config) *Children {
	cfg.Execute = cmp.Or(cfg.Execute, defaultExecute)
	return &Children{
		cfg:     cfg,
		forks:   make(chan func()),
		added:   make(chan struct{}, 1),
		done:    make(chan struct{}),
		running: make(map[int]*Child),
	}
}

// Run makes this process the parent of the sandbox's orphans, and starts to fork and to wait
// for children in the background, for as long as the process runs. It waits for every child
// of the process, so nothing else in the process may start any.
func (c *Children) Run() error {
	if err := becomeReaper(c.cfg.PID1); err != nil {
		return err
	}
	go c.fork()
	go c.reap()
	return nil
}

// Close makes the goroutine that waits for children end with the last child.
func (c *Children) Close() { close(c.done) }

// Execute returns the maximum time from fork to exec.
func (c *Children) Execute() time.Duration { return c.cfg.Execute }

// Claim makes Children call report when the child ends, or returns its status if it has ended
// already. The child's pid may be reused as soon as report is called.
func (ch *Child) Claim(report func(syscall.WaitStatus)) (status syscall.WaitStatus, ended bool) {
	ch.c.mu.Lock()
	defer ch.c.mu.Unlock()
	ch.report = report
	return ch.status, ch.ended
}
