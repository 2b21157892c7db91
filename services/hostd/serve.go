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

// serve exchanges commands and events with the shim until the sandbox has ended as requested,
// which is nil, or until the shim is gone or violates the protocol.
func (sb *hostSandbox) serve(ctx context.Context) error {
	var late <-chan time.Time
	var left drainProgress
	stop := (<-chan struct{})(sb.stop)
	for pause := dialRetry; ; {
		if err := sb.awaitResumed(ctx); err != nil {
			return err
		}
		conn, err := sb.connect(ctx)
		if err != nil {
			return err
		}
		since := time.Now()
		sb.restoring.Wait() // readers of Running find the sandbox's processes
		if err := sb.running(ctx); err != nil {
			return err
		}
		sb.forwardQueued()
		for _, p := range sb.orphans() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
		reading := make(chan error, 1)
		sb.h.wg.Go(func() { reading <- sb.read(conn) })
		for conn != nil {
			select {
			case <-ctx.Done():
				conn.Close()
				<-reading //nolint:errcheck // it ends with the connection
				return ctx.Err()
			case err := <-reading:
				sb.disconnect(conn)
				conn = nil
				if errors.Is(err, link.ErrHostile) {
					sb.h.slog.Warn("shim violated the protocol", "sandbox", sb.id, "err", err)
					return err
				}
				if time.Since(since) >= minConnection {
					pause = dialRetry
					continue
				}
				sleep(ctx, pause)
				pause = min(2*pause, maxDialRetry)
			case <-sb.poke:
				if err := sb.reconcile(ctx); err != nil {
					conn.Close()
					<-reading //nolint:errcheck // it ends with the connection
					return err
				}
			case <-stop:
				if err := sb.h.fault("stopping"); err != nil {
					return err
				}
				sb.resumeInstance(ctx) // the shim must be able to send its remaining output
				stop, late = nil, time.After(stopTimeout)
				left.stored = sb.stored()
				conn.Send(wire.AppendEnd)
			case <-late:
				if left.extend(sb, conn) {
					late = time.After(stopTimeout)
					continue
				}
				sb.truncated = true
				sb.disconnect(conn)
				return nil
			case <-sb.drained:
				sb.disconnect(conn)
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

	concludeVersion = 7 // the protocol version that added Conclude
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
	if r.stored = sb.stored(); r.stored == was {
		return sb.flow.AddPending(0) > 0
	}
	r.extensions++
	if r.extensions <= maxExtensions {
		return true
	}
	if conn.Version() < concludeVersion {
		return false
	}
	conn.Send(wire.AppendConclude) // sent on each call: the connection may be a new one
	return r.extensions <= maxExtensions+concludeExtensions
}

// stored returns a sum that changes whenever an event is stored.
func (sb *hostSandbox) stored() (sum process.Seq) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	for _, p := range sb.procs {
		p.mu.Lock()
		sum += p.stored
		p.mu.Unlock()
	}
	return sum
}

// connect dials the shim until it answers or is given up.
func (sb *hostSandbox) connect(ctx context.Context) (*link.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	var late sync.WaitGroup
	late.Go(func() {
		sb.awaitDialTimeout(ctx)
		cancel()
	})
	defer late.Wait()
	defer cancel()
	a := wire.Attach{
		Version: wire.Version, Epoch: sb.h.epoch, Sandbox: string(sb.id), Env: sb.env(), Limits: sb.h.cfg.limits(),
		Now: time.Now().UnixNano(), Seed: seed(),
	}
	spool, err := sb.openSpool()
	if err != nil { // the spool is for outages: without it the shim uses the one it was given first, or memory
		sb.h.slog.Warn("open spool failed", "sandbox", sb.id, "err", err)
	}
	defer spool.Close() //nolint:errcheck // the shim has its own descriptor; closing nil is harmless
	for {
		raw, err := sb.instance().Dial(ctx)
		if err == nil {
			var conn *link.Conn
			var hello wire.Hello
			if conn, hello, err = link.Attach(ctx, raw, &a, spool, &sb.h.pool, sb.serveEgress); err == nil {
				return conn, sb.attach(conn, &hello)
			}
			if hungUp(err) {
				a.Version = older(a.Version)
			}
		}
		if errors.Is(err, link.ErrHostile) {
			return nil, err
		}
		select {
		case <-sb.instance().Done():
			return nil, errShimGone
		default:
		}
		if !sleep(ctx, dialRetry) {
			return nil, errShimGone
		}
	}
}

// awaitDialTimeout returns when a shim has not answered for dialTimeout, or with ctx. The time in
// which the instance is paused to save its memory, perhaps by a previous run, does not count,
// unless the sandbox must end.
func (sb *hostSandbox) awaitDialTimeout(ctx context.Context) {
	keeps, ok := sb.instance().(driver.Checkpointer)
	for left := dialTimeout; left > 0 && sleep(ctx, dialCheck); left -= dialCheck {
		if ok && keeps.Checkpointing(ctx) && !sb.ending() {
			left = dialTimeout
		}
	}
}

// attach synchronizes both sides after a connect: each process continues from the last event that
// hostd has, and commands in flight are sent again.
func (sb *hostSandbox) attach(conn *link.Conn, hello *wire.Hello) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.sendNetwork(conn) // before anything is started
	sb.sendTime(conn)
	there := make(map[string]bool, len(hello.Processes))
	strangers := sb.unknownProcs
	for _, hp := range hello.Processes {
		there[hp.Token] = true
		if err := sb.attachProc(conn, hp); err != nil {
			conn.Close()
			return err
		}
	}
	if sb.unknownProcs > strangers {
		sb.h.slog.Info("shim has processes unknown to the catalogue", "sandbox", sb.id, "count", sb.unknownProcs-strangers)
	}
	for token, p := range sb.procs {
		if !there[token] && p.wasTaken() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
	}
	revs := make([]uint64, 0, len(sb.pending))
	for rev, c := range sb.pending {
		if !c.taken {
			revs = append(revs, rev)
		}
	}
	slices.Sort(revs)
	for _, rev := range revs {
		frame := sb.pending[rev].frame
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
	if sb.stopping {
		conn.Send(wire.AppendEnd)
	}
	sb.conn, sb.procsListed = conn, true
	sb.markReady()
	return nil
}

// listed reports whether the shim has listed its processes in this run. Before that, a process
// that an earlier run claimed may have been spawned: to refuse its start would let a retry with
// the same key run it twice.
func (sb *hostSandbox) listed() bool {
	if sb == nil {
		return false
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.procsListed
}

// attachProc continues with one process that the shim has.
func (sb *hostSandbox) attachProc(conn *link.Conn, hp wire.Process) error {
	id, err := process.ParseID(hp.Token + "-" + string(sb.id))
	if err != nil {
		return sb.hostile("token %q", hp.Token)
	}
	if _, ok := sb.forgotten[hp.Token]; ok {
		conn.Send(func(dst []byte) []byte { return wire.AppendForget(dst, hp.Token) })
		return nil
	}
	moved := hp.Moved
	hp.Moved = nil // it is large
	p := sb.procs[hp.Token]
	if p != nil {
		return p.reattach(conn, hp)
	}
	p = sb.h.newProc(sb, id)
	p.known = &hp
	if _, _, inView := sb.h.view.Process(id); !inView {
		if sb.unknownProcs == maxUnknown {
			return sb.hostile("more than %d processes are unknown to the catalogue", maxUnknown)
		}
		p.unknown = true
		sb.unknownProcs++
	}
	sb.procs[hp.Token] = p
	if moved != nil && sb.phase == sandbox.PhasePlaced { // every process has a record before the sandbox is Running
		return sb.adopt(p, moved)
	}
	sb.h.spawn("process "+string(id), func() error { return p.resume(sb.h.runCtx) })
	return nil
}

// disconnect ends a connection; later frames wait for the next one.
func (sb *hostSandbox) disconnect(conn *link.Conn) {
	sb.mu.Lock()
	if sb.conn == conn {
		sb.conn = nil
	}
	sb.mu.Unlock()
	conn.Close()
}

// ack sends the shim the last stored seq of a process, up to which it may drop events, and
// flushes if that frees much of the process's window, for which a busy process waits. The next
// connection starts with the full state again.
func (sb *hostSandbox) ack(m wire.Mark, freed int) {
	conn := sb.link()
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
func (sb *hostSandbox) send(f func([]byte) []byte) {
	if conn := sb.link(); conn != nil {
		conn.Send(f)
	}
}

// link returns the current connection; nil without one.
func (sb *hostSandbox) link() *link.Conn {
	if sb == nil {
		return nil
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.conn
}

// read handles messages from the shim until the connection ends.
func (sb *hostSandbox) read(conn *link.Conn) error {
	for {
		m, err := conn.Next()
		if err != nil {
			return err
		}
		switch m.Type {
		case wire.TypeEvent:
			err = sb.event(&m)
		case wire.TypeReply:
			sb.reply(&m.Reply)
		case wire.TypeTaken:
			sb.accepted(m.Rev)
		case wire.TypeEnded:
			sb.mu.Lock()
			sb.ended = sb.stopping
			sb.ifDrained()
			sb.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
}

func (sb *hostSandbox) event(m *link.Message) error {
	sb.mu.Lock()
	p := sb.procs[m.Token]
	_, forgotten := sb.forgotten[m.Token]
	sb.mu.Unlock()
	if forgotten {
		sb.h.pool.Put(m.Mem)
		return nil
	}
	if p == nil {
		return sb.hostile("event of the unknown process %q", m.Token)
	}
	return p.take(m)
}

// command sends a command to the shim, on each new connection again until it is accepted.
func (sb *hostSandbox) command(c events.Command, p *proc, frame []byte) {
	if in, ok := c.Body.(events.Stdin); ok {
		c.Body = events.Stdin{EOF: in.EOF} // the frame has the data
	}
	sb.mu.Lock()
	if sb.closed {
		sb.mu.Unlock()
		sb.h.refuse(c, kind.New(kind.NotFound, "command", c.ID, "the process has ended"))
		return
	}
	sb.pending[c.Rev] = &pending{cmd: c, frame: frame, proc: p}
	conn := sb.conn
	sb.mu.Unlock()
	if conn != nil {
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
}

// accepted handles the shim's Taken: the command need not be sent again.
func (sb *hostSandbox) accepted(rev uint64) {
	sb.mu.Lock()
	c := sb.pending[rev]
	if c == nil {
		sb.mu.Unlock()
		return
	}
	c.taken, c.frame = true, nil
	_, start := c.cmd.Body.(events.Start)
	if start {
		delete(sb.pending, rev)
	}
	sb.mu.Unlock()
	if start {
		c.proc.setTaken() // the cursor waits until its first event is stored
		return
	}
	sb.h.cursor.End(rev)
}

// reply handles the shim's reply to a command.
func (sb *hostSandbox) reply(r *wire.Reply) {
	sb.mu.Lock()
	c := sb.pending[r.Rev]
	delete(sb.pending, r.Rev)
	sb.mu.Unlock()
	if c == nil {
		return
	}
	sb.h.cursor.End(r.Rev)
	answer := events.Reply{Offset: r.Offset}
	if r.Error != "" {
		answer.Err = kind.New(r.Kind, "command", c.cmd.ID, r.Error)
	}
	if c.proc != nil && r.After > 0 {
		c.proc.replyAfter(r.After, c.cmd, answer)
		return
	}
	sb.h.answer(c.cmd, answer)
}

// shut refuses all commands, pending and later ones.
func (sb *hostSandbox) shut() {
	sb.mu.Lock()
	sb.closed = true
	pending := sb.pending
	sb.pending = nil
	conn := sb.conn
	sb.conn = nil
	sb.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	sb.markReady()
	for _, c := range pending {
		if _, start := c.cmd.Body.(events.Start); !start {
			sb.h.refuse(c.cmd, kind.New(kind.NotFound, "command", c.cmd.ID, "the process has ended"))
		}
	}
}
