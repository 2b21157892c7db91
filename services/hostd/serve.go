package hostd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	dialTimeout   = 30 * time.Second // after which a running shim that does not answer is given up
	dialCheck     = 5 * time.Second  // between checks of why it does not answer
	dialRetry     = 20 * time.Millisecond
	minConnection = time.Second // a connection shorter than this is redialed after a backoff,
	maxDialRetry  = time.Second // of at most this

	// maxUnknown is the maximum number of processes that a shim may have and the catalogue does
	// not: those restored with its memory, and those that just started.
	maxUnknown = 1 << 14
	maxLookups = 16 // concurrent lookups of processes per sandbox
)

// pending is a command that the shim has not answered.
type pending struct {
	cmd   events.Command
	frame []byte
	proc  *proc
	taken bool // the shim has accepted it: it is not sent again
}

// session is the connection to a sandbox's shim: the processes that it has, and the commands that
// it has not answered. mu is taken before the mutexes of the sandbox, its network and its
// processes.
type session struct {
	sb *hostSandbox

	ready     chan struct{}  // closed when the shim's processes are known, or the shim is gone
	drained   chan struct{}  // closed when, after End, every record has ended
	lookups   chan struct{}  // has a value for each process lookup in progress
	restoring sync.WaitGroup // processes whose record is being created here
	truncated bool           // of serve's goroutine: the shim was disconnected before it had sent everything

	mu           sync.Mutex
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

// serve exchanges commands and events with the shim until the sandbox has ended as requested,
// which is nil, or until the shim is gone or violates the protocol.
func (sb *hostSandbox) serve(ctx context.Context) error {
	var late <-chan time.Time
	var left drainProgress
	stop := (<-chan struct{})(sb.stop)
	for pause := dialRetry; ; {
		if err := sb.pausing.awaitResumed(ctx); err != nil {
			return err
		}
		conn, err := sb.session.connect(ctx)
		if err != nil {
			return err
		}
		since := time.Now()
		sb.session.restoring.Wait() // readers of Running find the sandbox's processes
		if err := sb.running(ctx); err != nil {
			return err
		}
		sb.commands.forwardQueued()
		for _, p := range sb.session.orphans() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
		reading := make(chan error, 1)
		sb.h.wg.Go(func() { reading <- sb.session.read(conn) })
		for conn != nil {
			select {
			case <-ctx.Done():
				conn.Close()
				<-reading //nolint:errcheck // it ends with the connection
				return ctx.Err()
			case err := <-reading:
				sb.session.disconnect(conn)
				conn = nil
				if errors.Is(err, link.ErrHostile) {
					sb.h.slog.Warn("shim violated the protocol", "sandbox", sb.id, "err", err)
					return err
				}
				if time.Since(since) >= minConnection {
					pause = dialRetry
					continue
				}
				waiting.Sleep(ctx, pause)
				pause = min(2*pause, maxDialRetry)
			case <-sb.pausing.poke:
				if err := sb.pausing.reconcile(ctx); err != nil {
					conn.Close()
					<-reading //nolint:errcheck // it ends with the connection
					return err
				}
			case <-stop:
				if err := sb.h.fault("stopping"); err != nil {
					return err
				}
				sb.pausing.resumeInstance(ctx) // the shim must be able to send its remaining output
				stop, late = nil, time.After(stopTimeout)
				left.stored = sb.session.stored()
				conn.Send(wire.AppendEnd)
			case <-late:
				if left.extend(sb, conn) {
					late = time.After(stopTimeout)
					continue
				}
				sb.session.truncated = true
				sb.session.disconnect(conn)
				return nil
			case <-sb.session.drained:
				sb.session.disconnect(conn)
				<-reading //nolint:errcheck // it ends because we did
				return nil
			}
		}
	}
}

const (
	// maxExtensions is how often a sandbox that ends may take stopTimeout more: as long as
	// storing a full spool takes, and bounded, since a shim could send output for ever.
	maxExtensions = 40
	// concludeExtensions is how often after Conclude, for what is in flight and the size of the
	// gap.
	concludeExtensions = 4
)

// drainProgress follows the remaining output of a sandbox that was asked to end.
type drainProgress struct {
	stored     process.Seq // see hostSandbox.stored
	extensions int
}

// extend reports whether more output was stored since the last call, or would be if the log
// accepted it. After maxExtensions it asks the shim to conclude.
func (r *drainProgress) extend(sb *hostSandbox, conn *link.Conn) bool {
	was := r.stored
	if r.stored = sb.session.stored(); r.stored == was {
		return sb.flow.AddPending(0) > 0
	}
	r.extensions++
	if r.extensions <= maxExtensions {
		return true
	}
	conn.Send(wire.AppendConclude) // sent on each call: the connection may be a new one
	return r.extensions <= maxExtensions+concludeExtensions
}

// stored returns a sum that changes whenever an event is stored.
func (ss *session) stored() (sum process.Seq) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, p := range ss.procs {
		p.mu.Lock()
		sum += p.stored
		p.mu.Unlock()
	}
	return sum
}

// connect dials the shim until it answers or is given up.
func (ss *session) connect(ctx context.Context) (*link.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	var late sync.WaitGroup
	late.Go(func() {
		ss.awaitDialTimeout(ctx)
		cancel()
	})
	defer late.Wait()
	defer cancel()
	a := wire.Attach{
		Epoch: ss.sb.h.epoch, Sandbox: string(ss.sb.id), Env: ss.sb.files.env(), Limits: ss.sb.h.cfg.limits(),
		Now: time.Now().UnixNano(), Seed: seed(),
	}
	spool, err := ss.sb.openSpool()
	if err != nil { // the spool is for outages: without it the shim uses the one it was given first, or memory
		ss.sb.h.slog.Warn("open spool failed", "sandbox", ss.sb.id, "err", err)
	}
	defer spool.Close() //nolint:errcheck // the shim has its own descriptor; closing nil is harmless
	for {
		raw, err := ss.sb.current.get().Dial(ctx)
		if err == nil {
			var conn *link.Conn
			var hello wire.Hello
			if conn, hello, err = link.Attach(ctx, raw, &a, spool, &ss.sb.h.pool, ss.sb.network.serve); err == nil {
				return conn, ss.attach(conn, &hello)
			}
		}
		if errors.Is(err, link.ErrHostile) || errors.Is(err, wire.ErrVersion) {
			return nil, err
		}
		select {
		case <-ss.sb.current.get().Done():
			return nil, errShimGone
		default:
		}
		if !waiting.Sleep(ctx, dialRetry) {
			return nil, errShimGone
		}
	}
}

// awaitDialTimeout returns when a shim has not answered for dialTimeout, or with ctx. The time in
// which the instance is paused to save its memory, perhaps by a previous run, does not count,
// unless the sandbox must end.
func (ss *session) awaitDialTimeout(ctx context.Context) {
	keeps, ok := ss.sb.current.get().(driver.Checkpointer)
	for left := dialTimeout; left > 0 && waiting.Sleep(ctx, dialCheck); left -= dialCheck {
		if ok && keeps.Checkpointing(ctx) && !ss.sb.ending() {
			left = dialTimeout
		}
	}
}

// attach synchronizes both sides after a connect: each process continues from the last event that
// hostd has, and commands in flight are sent again.
func (ss *session) attach(conn *link.Conn, hello *wire.Hello) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.sb.network.attach(conn) // before anything is started
	ss.sendTime(conn)
	there := make(map[string]bool, len(hello.Processes))
	strangers := ss.unknownProcs
	for _, hp := range hello.Processes {
		there[hp.Token] = true
		if err := ss.attachProc(conn, hp); err != nil {
			ss.sb.network.detach(conn)
			conn.Close()
			return err
		}
	}
	if ss.unknownProcs > strangers {
		ss.sb.h.slog.Info("shim has processes unknown to the catalogue", "sandbox", ss.sb.id, "count", ss.unknownProcs-strangers)
	}
	for token, p := range ss.procs {
		if !there[token] && p.wasTaken() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
	}
	revs := make([]uint64, 0, len(ss.pending))
	for rev, c := range ss.pending {
		if !c.taken {
			revs = append(revs, rev)
		}
	}
	slices.Sort(revs)
	for _, rev := range revs {
		frame := ss.pending[rev].frame
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
	if ss.sb.ending() {
		conn.Send(wire.AppendEnd)
	}
	ss.conn, ss.procsListed = conn, true
	ss.markReady()
	return nil
}

// listed reports whether the shim has listed its processes in this run. Before that, a process
// that an earlier run claimed may have been spawned: to refuse its start would let a retry with
// the same key run it twice.
func (ss *session) listed() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.procsListed
}

// attachProc continues with one process that the shim has.
func (ss *session) attachProc(conn *link.Conn, hp wire.Process) error {
	id, err := process.ParseID(hp.Token + "-" + string(ss.sb.id))
	if err != nil {
		return ss.sb.hostile("token %q", hp.Token)
	}
	if _, ok := ss.forgotten[hp.Token]; ok {
		conn.Send(func(dst []byte) []byte { return wire.AppendForget(dst, hp.Token) })
		return nil
	}
	moved := hp.Moved
	hp.Moved = nil // it is large
	p := ss.procs[hp.Token]
	if p != nil {
		return p.reattach(conn, hp)
	}
	p = ss.sb.h.newProc(ss.sb, id)
	p.known = &hp
	if _, _, inView := ss.sb.h.view.Process(id); !inView {
		if ss.unknownProcs == maxUnknown {
			return ss.sb.hostile("more than %d processes are unknown to the catalogue", maxUnknown)
		}
		p.unknown = true
		ss.unknownProcs++
	}
	ss.procs[hp.Token] = p
	if moved != nil && ss.sb.phase == sandbox.PhasePlaced { // every process has a record before the sandbox is Running
		return ss.adopt(p, moved)
	}
	ss.sb.h.spawn("process "+string(id), func() error { return p.resume(ss.sb.h.runCtx) })
	return nil
}

// syncClock sends the time to the shim of an instance that was resumed: a kernel of its own did
// not see it pass.
func (ss *session) syncClock() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.clockBehind = true; ss.conn != nil {
		ss.sendTime(ss.conn)
	}
}

// sendTime sends the time to the shim of an instance that was paused, also on each later
// connection: the one before may have lost it. mu is held.
func (ss *session) sendTime(conn *link.Conn) {
	if ss.clockBehind {
		conn.Send(func(dst []byte) []byte { return wire.AppendTime(dst, time.Now().UnixNano()) })
	}
}

// disconnect ends a connection; later frames wait for the next one.
func (ss *session) disconnect(conn *link.Conn) {
	ss.mu.Lock()
	if ss.conn == conn {
		ss.conn = nil
	}
	ss.sb.network.detach(conn)
	ss.mu.Unlock()
	conn.Close()
}

// ack sends the shim the last stored seq of a process, up to which it may drop events, and
// flushes if that frees much of the process's window, for which a busy process waits. The next
// connection starts with the full state again.
func (ss *session) ack(m wire.Mark, freed int) {
	conn := ss.link()
	if conn == nil {
		return
	}
	frame := func(dst []byte) []byte { return wire.AppendMark(dst, wire.TypeAck, m) }
	if freed < promptAck {
		conn.SendSoon(frame)
		return
	}
	conn.Send(frame)
}

// promptAck is how many acked bytes of output make an ack urgent.
const promptAck = wire.WindowProcess / 32

// send sends a frame if there is a connection.
func (ss *session) send(f func([]byte) []byte) {
	if conn := ss.link(); conn != nil {
		conn.Send(f)
	}
}

// link returns the current connection; nil without one.
func (ss *session) link() *link.Conn {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.conn
}

// read handles messages from the shim until the connection ends.
func (ss *session) read(conn *link.Conn) error {
	for {
		m, err := conn.Next()
		if err != nil {
			return err
		}
		switch m.Type {
		case wire.TypeEvent:
			err = ss.event(&m)
		case wire.TypeReply:
			ss.reply(&m.Reply)
		case wire.TypeTaken:
			ss.accepted(m.Rev)
		case wire.TypeEnded:
			ending := ss.sb.ending()
			ss.mu.Lock()
			ss.ended = ending
			ss.ifDrained()
			ss.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
}

func (ss *session) event(m *link.Message) error {
	ss.mu.Lock()
	p := ss.procs[m.Token]
	_, forgotten := ss.forgotten[m.Token]
	ss.mu.Unlock()
	if forgotten {
		ss.sb.h.pool.Put(m.Mem)
		return nil
	}
	if p == nil {
		return ss.sb.hostile("event of the unknown process %q", m.Token)
	}
	return p.inbox.take(m)
}

// command sends a command to the shim, on each new connection again until it is accepted.
func (ss *session) command(c events.Command, p *proc, frame []byte) {
	if in, ok := c.Body.(events.Stdin); ok {
		c.Body = events.Stdin{EOF: in.EOF} // the frame has the data
	}
	ss.mu.Lock()
	if ss.closed {
		ss.mu.Unlock()
		ss.sb.h.commands.refuse(c, kind.New(kind.NotFound, "command", c.ID, "the process has ended"))
		return
	}
	ss.pending[c.Rev] = &pending{cmd: c, frame: frame, proc: p}
	conn := ss.conn
	ss.mu.Unlock()
	if conn != nil {
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
}

// accepted handles the shim's Taken: the command need not be sent again.
func (ss *session) accepted(rev uint64) {
	ss.mu.Lock()
	c := ss.pending[rev]
	if c == nil {
		ss.mu.Unlock()
		return
	}
	c.taken, c.frame = true, nil
	_, start := c.cmd.Body.(events.Start)
	if start {
		delete(ss.pending, rev)
	}
	ss.mu.Unlock()
	if start {
		c.proc.setTaken() // the cursor waits until its first event is stored
		return
	}
	ss.sb.h.commands.cursor.End(rev)
}

// reply handles the shim's reply to a command.
func (ss *session) reply(r *wire.Reply) {
	ss.mu.Lock()
	c := ss.pending[r.Rev]
	delete(ss.pending, r.Rev)
	ss.mu.Unlock()
	if c == nil {
		return
	}
	ss.sb.h.commands.cursor.End(r.Rev)
	answer := events.Reply{Offset: r.Offset}
	if r.Error != "" {
		answer.Err = kind.New(r.Kind, "command", c.cmd.ID, r.Error)
	}
	if c.proc != nil && r.After > 0 {
		c.proc.replies.replyAfter(r.After, c.cmd, answer)
		return
	}
	ss.sb.h.commands.answer(c.cmd, answer)
}

// shut refuses all commands, pending and later ones.
func (ss *session) shut() {
	ss.mu.Lock()
	ss.closed = true
	pending := ss.pending
	ss.pending = nil
	conn := ss.conn
	ss.conn = nil
	ss.sb.network.detach(conn)
	ss.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	ss.markReady()
	for _, c := range pending {
		if _, start := c.cmd.Body.(events.Start); !start {
			ss.sb.h.commands.refuse(c.cmd, kind.New(kind.NotFound, "command", c.cmd.ID, "the process has ended"))
		}
	}
}
