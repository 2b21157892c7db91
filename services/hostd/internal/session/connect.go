package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// connect dials the shim until it answers or is given up.
func (ss *Session) connect(ctx context.Context) (*link.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	var late sync.WaitGroup
	late.Go(func() {
		ss.awaitDialTimeout(ctx)
		cancel()
	})
	defer late.Wait()
	defer cancel()
	a := wire.Attach{
		Epoch: ss.h.cfg.Epoch, Sandbox: string(ss.cfg.ID), Env: ss.cfg.Env(), Limits: ss.h.cfg.Limits,
		Now: time.Now().UnixNano(), Seed: seed(),
	}
	spool, err := ss.cfg.Spool()
	if err != nil { // the spool is for outages: without it the shim uses the one it was given first, or memory
		ss.h.cfg.Slog.Warn("open spool failed", "sandbox", ss.cfg.ID, "err", err)
	}
	defer spool.Close()
	for {
		raw, err := ss.cfg.Instance().Dial(ctx)
		if err == nil {
			var conn *link.Conn
			var hello wire.Hello
			if conn, hello, err = link.Attach(ctx, raw, &a, spool, &ss.h.pool, ss.cfg.Network.Serve); err == nil {
				return conn, ss.attach(conn, &hello)
			}
		}
		if errors.Is(err, link.ErrHostile) || errors.Is(err, wire.ErrVersion) {
			return nil, err
		}
		select {
		case <-ss.cfg.Instance().Done():
			return nil, ErrShimGone
		default:
		}
		if !waiting.Sleep(ctx, DialRetry) {
			return nil, ErrShimGone
		}
	}
}

// awaitDialTimeout returns when a shim has not answered for DialTimeout, or with ctx. The time in
// which the instance is paused to save its memory, perhaps by a previous run, does not count,
// unless the sandbox must end.
func (ss *Session) awaitDialTimeout(ctx context.Context) {
	keeps, ok := ss.cfg.Instance().(driver.Checkpointer)
	for left := DialTimeout; left > 0 && waiting.Sleep(ctx, dialCheck); left -= dialCheck {
		if ok && keeps.Checkpointing(ctx) && !ss.cfg.Ending() {
			left = DialTimeout
		}
	}
}

// attach synchronizes both sides after a connect: each process continues from the last event that
// hostd has, and commands in flight are sent again.
func (ss *Session) attach(conn *link.Conn, hello *wire.Hello) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.cfg.Network.Attach(conn) // before anything is started
	ss.sendTime(conn)
	there := make(map[string]bool, len(hello.Processes))
	strangers := ss.unknownProcs
	for _, hp := range hello.Processes {
		there[hp.Token] = true
		if err := ss.attachProc(conn, hp); err != nil {
			ss.cfg.Network.Detach(conn)
			conn.Close()
			return err
		}
	}
	if ss.unknownProcs > strangers {
		ss.h.cfg.Slog.Info("shim has processes unknown to the catalog", "sandbox", ss.cfg.ID, "count", ss.unknownProcs-strangers)
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
	if ss.cfg.Ending() {
		conn.Send(wire.AppendEnd)
	}
	ss.conn, ss.procsListed = conn, true
	ss.markReady()
	return nil
}

// listed reports whether the shim has listed its processes in this run. Before that, a process
// that an earlier run claimed may have been spawned: to refuse its start would let a retry with
// the same key run it twice.
func (ss *Session) listed() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.procsListed
}

// attachProc continues with one process that the shim has.
func (ss *Session) attachProc(conn *link.Conn, hp wire.Process) error {
	id, err := process.ParseID(hp.Token + "-" + string(ss.cfg.ID))
	if err != nil {
		return hostile("token %q", hp.Token)
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
	p = ss.h.newProc(ss, id)
	p.known = &hp
	if _, _, inView := ss.h.cfg.View.Process(id); !inView {
		if ss.unknownProcs == maxUnknown {
			return hostile("more than %d processes are unknown to the catalog", maxUnknown)
		}
		p.unknown = true
		ss.unknownProcs++
	}
	ss.procs[hp.Token] = p
	if moved != nil && ss.cfg.Unrecorded() { // every process has a record before the sandbox is Running
		return ss.adopt(p, moved)
	}
	ss.h.cfg.Spawn("process "+string(id), p.resume)
	return nil
}

// SyncClock sends the time to the shim of an instance that was resumed: a kernel of its own did
// not see it pass.
func (ss *Session) SyncClock() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.clockBehind = true; ss.conn != nil {
		ss.sendTime(ss.conn)
	}
}

// sendTime sends the time to the shim of an instance that was paused, also on each later
// connection: the one before may have lost it. mu is held.
func (ss *Session) sendTime(conn *link.Conn) {
	if ss.clockBehind {
		conn.Send(func(dst []byte) []byte { return wire.AppendTime(dst, time.Now().UnixNano()) })
	}
}

// disconnect ends a connection; later frames wait for the next one.
func (ss *Session) disconnect(conn *link.Conn) {
	ss.mu.Lock()
	if ss.conn == conn {
		ss.conn = nil
	}
	ss.cfg.Network.Detach(conn)
	ss.mu.Unlock()
	conn.Close()
}

// Reconnect ends the current connection, if there is one: the instance was replaced.
func (ss *Session) Reconnect() {
	if conn := ss.Conn(); conn != nil {
		ss.disconnect(conn)
	}
}

// OpenPort opens a stream to a port of the sandbox, or to its files. Errors: Unavailable while the
// shim is not connected.
func (ss *Session) OpenPort(ctx context.Context, port string) (*mux.Stream, error) {
	conn := ss.Conn()
	if conn == nil {
		return nil, kind.New(kind.Unavailable, "open port", string(ss.cfg.ID), "the sandbox cannot be reached right now, try again")
	}
	stream, err := conn.Open(ctx, port)
	if err == nil {
		ss.cfg.Requests.Add(1)
	}
	return stream, err
}
