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
	dialTimeout = 30 * time.Second // after which a running shim that does not answer is given up
	dialLook    = 5 * time.Second  // between checks of why it does not answer
	dialPause   = 20 * time.Millisecond
	briefly     = time.Second // a connection shorter than this is redialed after a backoff,
	maxPause    = time.Second // of at most this

	// maxUnknown is the maximum number of processes that a shim may have and the catalogue does
	// not: those restored with its memory, and those that just started.
	maxStrangers = 1 << 14
	lookAtOnce   = 16 // concurrent lookups of processes per sandbox
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
func (b *box) serve(ctx context.Context) error {
	var late <-chan time.Time
	var left remains
	stop := (<-chan struct{})(b.stop)
	for pause := dialPause; ; {
		if err := b.stand(ctx); err != nil {
			return err
		}
		conn, err := b.connect(ctx)
		if err != nil {
			return err
		}
		since := time.Now()
		b.moving.Wait() // readers of Running find the sandbox's processes
		if err := b.running(ctx); err != nil {
			return err
		}
		b.passEarly()
		for _, p := range b.orphans() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
		reading := make(chan error, 1)
		b.h.wg.Go(func() { reading <- b.read(conn) })
		for conn != nil {
			select {
			case <-ctx.Done():
				conn.Close()
				<-reading //nolint:errcheck // it ends with the connection
				return ctx.Err()
			case err := <-reading:
				b.disconnect(conn)
				conn = nil
				if errors.Is(err, link.ErrHostile) {
					b.h.slog.Warn("shim violated the protocol", "sandbox", b.id, "err", err)
					return err
				}
				if time.Since(since) >= briefly {
					pause = dialPause
					continue
				}
				rest(ctx, pause)
				pause = min(2*pause, maxPause)
			case <-b.turn:
				if err := b.obey(ctx); err != nil {
					conn.Close()
					<-reading //nolint:errcheck // it ends with the connection
					return err
				}
			case <-stop:
				if err := b.h.fault("stopping"); err != nil {
					return err
				}
				b.thaw(ctx) // the shim must be able to send its remaining output
				stop, late = nil, time.After(stopTimeout)
				left.stored = b.stored()
				conn.Send(wire.AppendEnd)
			case <-late:
				if left.goesOn(b, conn) {
					late = time.After(stopTimeout)
					continue
				}
				b.cut = true
				b.disconnect(conn)
				return nil
			case <-b.drained:
				b.disconnect(conn)
				<-reading //nolint:errcheck // it ends because we did
				return nil
			}
		}
	}
}

const (
	// maxExtensions is how often a sandbox that ends may take stopTimeout more: as long as
	// storing a full spool takes, and bounded, since a shim could send output for ever.
	maxRemains = 40
	// concludeExtensions is how often after Conclude, for what is in flight and the size of the
	// gap.
	lastRemains = 4

	concludeVersion = 7 // the protocol version that added Conclude
)

// drainProgress follows the remaining output of a sandbox that was asked to end.
type remains struct {
	stored process.Seq // see hostSandbox.stored
	turns  int
}

// extend reports whether more output was stored since the last call, or would be if the log
// accepted it. After maxExtensions it asks the shim to conclude.
func (r *remains) goesOn(b *box, conn *link.Conn) bool {
	was := r.stored
	if r.stored = b.stored(); r.stored == was {
		return b.flow.Hold(0) > 0
	}
	r.turns++
	if r.turns <= maxRemains {
		return true
	}
	if conn.Version() < concludeVersion {
		return false
	}
	conn.Send(wire.AppendConclude) // sent on each call: the connection may be a new one
	return r.turns <= maxRemains+lastRemains
}

// stored returns a sum that changes whenever an event is stored.
func (b *box) stored() (sum process.Seq) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.procs {
		p.mu.Lock()
		sum += p.stored
		p.mu.Unlock()
	}
	return sum
}

// connect dials the shim until it answers or is given up.
func (b *box) connect(ctx context.Context) (*link.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	var late sync.WaitGroup
	late.Go(func() {
		b.patience(ctx)
		cancel()
	})
	defer late.Wait()
	defer cancel()
	a := wire.Attach{
		Version: wire.Version, Epoch: b.h.epoch, Sandbox: string(b.id), Env: b.env(), Limits: b.h.cfg.limits(),
		Now: time.Now().UnixNano(), Seed: seed(),
	}
	spool, err := b.openSpool()
	if err != nil { // the spool is for outages: without it the shim uses the one it was given first, or memory
		b.h.slog.Warn("open spool failed", "sandbox", b.id, "err", err)
	}
	defer spool.Close() //nolint:errcheck // the shim has its own descriptor; closing nil is harmless
	for {
		raw, err := b.instance().Dial(ctx)
		if err == nil {
			var conn *link.Conn
			var hello wire.Hello
			if conn, hello, err = link.Attach(ctx, raw, &a, spool, &b.h.pool, b.goOut); err == nil {
				return conn, b.greet(conn, &hello)
			}
			if hungUp(err) {
				a.Version = older(a.Version)
			}
		}
		if errors.Is(err, link.ErrHostile) {
			return nil, err
		}
		select {
		case <-b.instance().Done():
			return nil, errShimGone
		default:
		}
		if !rest(ctx, dialPause) {
			return nil, errShimGone
		}
	}
}

// awaitDialTimeout returns when a shim has not answered for dialTimeout, or with ctx. The time in
// which the instance is paused to save its memory, perhaps by a previous run, does not count,
// unless the sandbox must end.
func (b *box) patience(ctx context.Context) {
	keeps, ok := b.instance().(driver.Keeping)
	for left := dialTimeout; left > 0 && rest(ctx, dialLook); left -= dialLook {
		if ok && keeps.Keeping(ctx) && !b.ending() {
			left = dialTimeout
		}
	}
}

// attach synchronizes both sides after a connect: each process continues from the last event that
// hostd has, and commands in flight are sent again.
func (b *box) greet(conn *link.Conn, hello *wire.Hello) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sendNetwork(conn) // before anything is started
	b.tellTime(conn)
	there := make(map[string]bool, len(hello.Processes))
	strangers := b.strangers
	for _, hp := range hello.Processes {
		there[hp.Token] = true
		if err := b.meet(conn, hp); err != nil {
			conn.Close()
			return err
		}
	}
	if b.strangers > strangers {
		b.h.slog.Info("shim has processes unknown to the catalogue", "sandbox", b.id, "count", b.strangers-strangers)
	}
	for token, p := range b.procs {
		if !there[token] && p.wasTaken() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
	}
	revs := make([]uint64, 0, len(b.pending))
	for rev, c := range b.pending {
		if !c.taken {
			revs = append(revs, rev)
		}
	}
	slices.Sort(revs)
	for _, rev := range revs {
		frame := b.pending[rev].frame
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
	if b.stopping {
		conn.Send(wire.AppendEnd)
	}
	b.conn, b.greeted = conn, true
	b.markReady()
	return nil
}

// listed reports whether the shim has listed its processes in this run. Before that, a process
// that an earlier run claimed may have been spawned: to refuse its start would let a retry with
// the same key run it twice.
func (b *box) met() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.greeted
}

// attachProc continues with one process that the shim has.
func (b *box) meet(conn *link.Conn, hp wire.Process) error {
	id, err := process.ParseID(hp.Token + "-" + string(b.id))
	if err != nil {
		return b.hostile("token %q", hp.Token)
	}
	if _, ok := b.forgotten[hp.Token]; ok {
		conn.Send(func(dst []byte) []byte { return wire.AppendForget(dst, hp.Token) })
		return nil
	}
	moved := hp.Moved
	hp.Moved = nil // it is large
	p := b.procs[hp.Token]
	if p != nil {
		return p.meet(conn, hp)
	}
	p = b.h.newProc(b, id)
	p.known = &hp
	if _, _, inView := b.h.view.Process(id); !inView {
		if b.strangers == maxStrangers {
			return b.hostile("more than %d processes are unknown to the catalogue", maxStrangers)
		}
		p.stranger = true
		b.strangers++
	}
	b.procs[hp.Token] = p
	if moved != nil && b.phase == sandbox.PhasePlaced { // every process has a record before the sandbox is Running
		return b.adopt(p, moved)
	}
	b.h.spawn("process "+string(id), func() error { return p.resume(b.h.life) })
	return nil
}

// disconnect ends a connection; later frames wait for the next one.
func (b *box) disconnect(conn *link.Conn) {
	b.mu.Lock()
	if b.conn == conn {
		b.conn = nil
	}
	b.mu.Unlock()
	conn.Close()
}

// ack sends the shim the last stored seq of a process, up to which it may drop events, and
// flushes if that frees much of the process's window, for which a busy process waits. The next
// connection starts with the full state again.
func (b *box) ack(m wire.Mark, freed int) {
	conn := b.link()
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
func (b *box) send(f func([]byte) []byte) {
	if conn := b.link(); conn != nil {
		conn.Send(f)
	}
}

// link returns the current connection; nil without one.
func (b *box) link() *link.Conn {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conn
}

// read handles messages from the shim until the connection ends.
func (b *box) read(conn *link.Conn) error {
	for {
		m, err := conn.Next()
		if err != nil {
			return err
		}
		switch m.Type {
		case wire.TypeEvent:
			err = b.event(&m)
		case wire.TypeReply:
			b.reply(&m.Reply)
		case wire.TypeTaken:
			b.taken(m.Rev)
		case wire.TypeEnded:
			b.mu.Lock()
			b.ended = b.stopping
			b.ifDrained()
			b.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
}

func (b *box) event(m *link.Message) error {
	b.mu.Lock()
	p := b.procs[m.Token]
	_, forgotten := b.forgotten[m.Token]
	b.mu.Unlock()
	if forgotten {
		b.h.pool.Put(m.Mem)
		return nil
	}
	if p == nil {
		return b.hostile("event of the unknown process %q", m.Token)
	}
	return p.take(m)
}

// command sends a command to the shim, on each new connection again until it is accepted.
func (b *box) command(c events.Command, p *proc, frame []byte) {
	if in, ok := c.Body.(events.Stdin); ok {
		c.Body = events.Stdin{EOF: in.EOF} // the frame has the data
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.h.refuse(c, kind.New(kind.NotFound, "command", c.ID, "the process has ended"))
		return
	}
	b.pending[c.Rev] = &pending{cmd: c, frame: frame, proc: p}
	conn := b.conn
	b.mu.Unlock()
	if conn != nil {
		conn.Send(func(dst []byte) []byte { return append(dst, frame...) })
	}
}

// accepted handles the shim's Taken: the command need not be sent again.
func (b *box) taken(rev uint64) {
	b.mu.Lock()
	c := b.pending[rev]
	if c == nil {
		b.mu.Unlock()
		return
	}
	c.taken, c.frame = true, nil
	_, start := c.cmd.Body.(events.Start)
	if start {
		delete(b.pending, rev)
	}
	b.mu.Unlock()
	if start {
		c.proc.setTaken() // the cursor waits until its first event is stored
		return
	}
	b.h.cursor.end(rev)
}

// reply handles the shim's reply to a command.
func (b *box) reply(r *wire.Reply) {
	b.mu.Lock()
	c := b.pending[r.Rev]
	delete(b.pending, r.Rev)
	b.mu.Unlock()
	if c == nil {
		return
	}
	b.h.cursor.end(r.Rev)
	answer := events.Reply{Offset: r.Offset}
	if r.Error != "" {
		answer.Err = kind.New(r.Kind, "command", c.cmd.ID, r.Error)
	}
	if c.proc != nil && r.After > 0 {
		c.proc.replyAfter(r.After, c.cmd, answer)
		return
	}
	b.h.answer(c.cmd, answer)
}

// shut refuses all commands, pending and later ones.
func (b *box) shut() {
	b.mu.Lock()
	b.closed = true
	pending := b.pending
	b.pending = nil
	conn := b.conn
	b.conn = nil
	b.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	b.markReady()
	for _, c := range pending {
		if _, start := c.cmd.Body.(events.Start); !start {
			b.h.refuse(c.cmd, kind.New(kind.NotFound, "command", c.cmd.ID, "the process has ended"))
		}
	}
}
