package session

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/command"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/fair"
	"github.com/millrace/millrace/services/hostd/internal/link"
)

const (
	// DialTimeout is the time after which a running shim that does not answer is given up.
	DialTimeout = 30 * time.Second
	// DialRetry is the time between two attempts to connect.
	DialRetry = 20 * time.Millisecond
	dialCheck = 5 * time.Second // between checks of why a shim does not answer

	// maxUnknown is the maximum number of processes that a shim may have and the catalog does
	// not: those restored with its memory, and those that just started.
	maxUnknown = 1 << 14
	maxLookups = 16 // concurrent lookups of processes per sandbox
)

// ErrShimGone reports that a sandbox's shim has ended, or does not answer.
var ErrShimGone = errors.New("the sandbox's shim is gone")

// Config describes the sandbox of a session. All fields but From and FromSandbox are required.
type Config struct {
	ID          sandbox.ID
	Tenant      string
	From        sandbox.SnapshotID // the snapshot that it is made from; empty: none
	FromSandbox sandbox.ID         // the sandbox of that snapshot
	Requests    *atomic.Uint64     // number of starts, inputs and connections from clients
	Stop        <-chan struct{}    // closed when the sandbox must end

	Ending     func() bool              // reports whether Stop is closed
	Unrecorded func() bool              // reports whether its record does not say yet that it runs
	Usable     func() error             // returns why no command may be sent, such as a pause
	Instance   func() driver.Instance   // returns its current instance; nil without one
	Env        func() map[string]string // returns the environment of its processes
	Spool      func() (*os.File, error) // opens the file for output that is not stored yet; nil: output is kept in memory
	Network    Network
}

// Network is the network of a sandbox.
type Network interface {
	Attach(*link.Conn) // uses a connection, before anything is started on it
	Detach(*link.Conn) // ends that
	Serve(*mux.Stream) // serves a stream that the shim opened
}

// pending is a command that the shim has not answered.
type pending struct {
	cmd   command.Command
	frame []byte
	proc  *proc
	taken bool // the shim has accepted it: it is not sent again
}

// Session is the connection to a sandbox's shim: the processes that it has, and the commands that
// it has not answered.
type Session struct {
	h   *Host
	cfg Config

	flow    *fair.Flow // its share of the store bandwidth
	tails   *tails     // nil: the sandbox was created by this run
	adopted bool       // the sandbox was created by a previous run

	ready     chan struct{}  // closed when the shim's processes are known, or the shim is gone
	drained   chan struct{}  // closed when, after End, every record has ended
	lookups   chan struct{}  // has a value for each process lookup in progress
	restoring sync.WaitGroup // processes whose record is being created here
	truncated bool           // of Serve's goroutine: the shim was disconnected before it had sent everything

	queue queue

	mu           sync.Mutex // taken before the mutexes of the sandbox, its network and its processes
	conn         *link.Conn // nil: not connected
	procsListed  bool       // the shim has listed its processes
	procs        map[string]*proc
	forgotten    map[string]struct{} // processes whose remaining events are discarded
	pending      map[uint64]*pending // unanswered commands, by rev
	lastSweep    time.Time           // time of the last removal of expired commands from pending
	unknownProcs int                 // number of procs that only the shim has reported
	ended        bool                // the shim reported that everything has ended
	closed       bool                // no process can be started and no command sent any more
	clockBehind  bool                // the instance was paused; see sendTime
}

// Adopt prepares the session for a sandbox that a previous run created. It must be called before
// any other method.
func (ss *Session) Adopt() {
	ss.adopted = true
	ss.loadTails()
}

// Ready returns a channel that is closed when the shim's processes are known, or the shim is gone.
func (ss *Session) Ready() <-chan struct{} { return ss.ready }

// Truncated reports whether Serve disconnected the shim before it had sent everything.
func (ss *Session) Truncated() bool { return ss.truncated }

// Detach disconnects from a sandbox that continues without this run.
func (ss *Session) Detach() {
	ss.mu.Lock()
	conn := ss.conn
	ss.conn = nil
	ss.cfg.Network.Detach(conn)
	ss.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	ss.markReady()
}

func (ss *Session) markReady() {
	select {
	case <-ss.ready:
	default:
		close(ss.ready)
	}
}

// Count returns the number of processes whose record has not ended.
func (ss *Session) Count() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.procs)
}

// remove drops a process whose record has ended.
func (ss *Session) remove(p *proc) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.procs[p.id.Token()] == p {
		delete(ss.procs, p.id.Token())
		if p.unknown {
			ss.unknownProcs--
		}
	}
	ss.ifDrained()
}

func (ss *Session) ifDrained() {
	if !ss.ended || len(ss.procs) > 0 {
		return
	}
	if !ss.isDrained() {
		close(ss.drained)
	}
}

// isDrained reports whether the sandbox has ended as requested and every record is stored.
func (ss *Session) isDrained() bool {
	select {
	case <-ss.drained:
		return true
	default:
		return false
	}
}

func (ss *Session) proc(token string) *proc {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.procs[token]
}

func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", link.ErrHostile, fmt.Sprintf(format, args...))
}
