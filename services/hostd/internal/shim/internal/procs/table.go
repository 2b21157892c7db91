package procs

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/redact"
	"github.com/millrace/millrace/services/hostd/internal/files"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/children"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/oom"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/output"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/users"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// Environment adds variables to those of each process.
type Environment interface {
	SetEnv(env map[string]string)
}

// Watcher watches files of the sandbox.
type Watcher interface {
	Watch(w *file.Watch) (*files.Watcher, error)
}

// Config has the parts that processes use. All are required.
type Config struct {
	PID1     bool // the shim is pid 1: no process needs to be ended with it
	Users    *users.Database
	Children *children.Children
	OOM      *oom.Counter
	Output   *output.Buffer
	Network  Environment
	Files    Watcher
	Hostd    Hostd
}

// The defaults of wire.Limits.
const (
	defaultGrace    = 2 * time.Second
	defaultGraceMax = 30 * time.Second
)

// Table has the processes of a sandbox. It is safe for concurrent use.
type Table struct {
	cfg  Config
	done chan struct{} // closed when the sandbox has ended and everything is acknowledged

	mu         sync.Mutex // guards all below and all of proc; taken before the mutexes of other parts
	procs      map[string]*proc
	spawning   int
	slots      map[int]chan struct{} // by user: one value for each start in progress
	watchCount int                   // number that runs
	watchTotal int                   // number ever started
	env        map[string]string
	grace      time.Duration // see wire.Limits
	graceMax   time.Duration
	replies    replies
	pauses     pauseClock
	patterns   []string    // of the last start
	redact     *redact.Set // its patterns, compiled
	ending     bool
	ended      bool
}

// New returns a table without processes.
func New(cfg Config) *Table {
	return &Table{
		cfg:      cfg,
		done:     make(chan struct{}),
		procs:    make(map[string]*proc),
		slots:    make(map[int]chan struct{}),
		grace:    defaultGrace,
		graceMax: defaultGraceMax,
		replies:  replies{hostd: cfg.Hostd},
	}
}

// Done is closed when, after End, hostd has stored every record.
func (t *Table) Done() <-chan struct{} { return t.done }

// Attach applies the settings of a, and calls install with the frames that answer a: the list
// of processes. Replies are sent before or after install, never meanwhile. If moved is set,
// the shim was restored from the memory of another sandbox: all running processes become
// processes of this one.
func (t *Table) Attach(a *wire.Attach, moved bool, install func(frames []byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if moved {
		t.move()
	}
	var frames []byte
	var hello wire.Hello
	for _, p := range t.procs {
		if after, ok := p.rec.Moved(); ok {
			frames = wire.AppendMoved(frames, &wire.Moved{Token: p.token, After: after, Spec: p.spec})
		}
		first, last := p.rec.Range()
		hello.Processes = append(hello.Processes, wire.Process{Token: p.token, PID: uint32(p.pid), First: first, Last: last, Rev: p.rev})
	}
	frames = wire.AppendHello(frames, &hello)
	if t.ended {
		frames = wire.AppendEnded(frames)
	}
	t.env = maps.Clone(a.Env)
	if !t.ending {
		t.grace, t.graceMax = cmp.Or(a.Limits.Grace, defaultGrace), cmp.Or(a.Limits.GraceMax, defaultGraceMax)
	}
	install(frames)
}

// move turns all running processes into processes of another sandbox. Finished processes
// remain the old one's alone, and so do its watches, which have no reader here.
func (t *Table) move() {
	t.replies.sent = outcomes{} // the revs of this sandbox's commands are unrelated
	for _, p := range t.procs {
		p.queued = commandQueue{} // commands of the other sandbox
		switch {
		case p.finished:
			p.discard()
		case p.isWatch: // hostd has no record for it
			p.abandon()
		default:
			p.rev = 0
			if p.exited {
				p.rec.Move(p.pid, &p.exit)
			} else {
				p.rec.Move(p.pid, nil)
			}
		}
	}
}

// remove removes a process whose events hostd has all stored. After End, removing the last one
// also ends the shim.
func (t *Table) remove(p *proc) {
	delete(t.procs, p.token)
	if t.ended && len(t.procs) == 0 {
		t.close()
	}
}

func (t *Table) close() {
	select {
	case <-t.done:
	default:
		close(t.done)
		t.cfg.Children.Close()
	}
}
