package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/hostd/internal/link"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	stopTimeout   = 15 * time.Second // after which a sandbox that has not ended by itself is disconnected
	rebootTimeout = 20 * time.Second // bounds the wait for the records of killed processes
	minConnection = time.Second      // a connection shorter than this is redialed after a backoff,
	maxDialRetry  = time.Second      // of at most this
)

// Pauses pauses and resumes the sandbox of a session.
type Pauses interface {
	// AwaitResumed waits while the shim cannot be reached because the sandbox is paused.
	AwaitResumed(ctx context.Context) error
	// Changed returns a channel that has a value when Reconcile must be called.
	Changed() <-chan struct{}
	// Reconcile pauses or resumes the instance if the record requests that.
	Reconcile(ctx context.Context) error
	// ResumeInstance resumes the instance if it is paused, whatever the record requests.
	ResumeInstance(ctx context.Context)
}

// Serve exchanges commands and events with the shim until the sandbox has ended as requested,
// which is nil, or until the shim is gone or violates the protocol. running records that processes can be started.
func (ss *Session) Serve(ctx context.Context, pauses Pauses, running func(context.Context) error) error {
	var late <-chan time.Time
	var left drainProgress
	stop := ss.cfg.Stop
	for pause := DialRetry; ; {
		if err := pauses.AwaitResumed(ctx); err != nil {
			return err
		}
		conn, err := ss.connect(ctx)
		if err != nil {
			return err
		}
		since := time.Now()
		ss.restoring.Wait() // readers of Running find the sandbox's processes
		if err := running(ctx); err != nil {
			return err
		}
		ss.queue.openUp()
		for _, p := range ss.orphans() {
			p.lose(process.Exit{Cause: process.CauseShimLost})
		}
		reading := make(chan error, 1)
		ss.h.cfg.Go(func() { reading <- ss.read(conn) })
		for conn != nil {
			select {
			case <-ctx.Done():
				conn.Close()
				<-reading //nolint:errcheck // it ends with the connection
				return ctx.Err()
			case err := <-reading:
				ss.disconnect(conn)
				conn = nil
				if ss.isDrained() { // the shim ends as soon as it has reported the end
					return nil
				}
				if errors.Is(err, link.ErrHostile) {
					ss.h.cfg.Slog.Warn("shim violated the protocol", "sandbox", ss.cfg.ID, "err", err)
					return err
				}
				if time.Since(since) >= minConnection {
					pause = DialRetry
					continue
				}
				waiting.Sleep(ctx, pause)
				pause = min(2*pause, maxDialRetry)
			case <-pauses.Changed():
				if err := pauses.Reconcile(ctx); err != nil {
					conn.Close()
					<-reading //nolint:errcheck // it ends with the connection
					return err
				}
			case <-stop:
				if err := ss.h.cfg.Fault("stopping"); err != nil {
					return err
				}
				pauses.ResumeInstance(ctx) // the shim must be able to send its remaining output
				stop, late = nil, time.After(stopTimeout)
				left.stored = ss.stored()
				conn.Send(wire.AppendEnd)
			case <-late:
				if left.extend(ss, conn) {
					late = time.After(stopTimeout)
					continue
				}
				ss.truncated = true
				ss.disconnect(conn)
				return nil
			case <-ss.drained:
				ss.disconnect(conn)
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
	stored     process.Seq // see Session.stored
	extensions int
}

// extend reports whether more output was stored since the last call, or would be if the log
// accepted it. After maxExtensions it asks the shim to conclude.
func (r *drainProgress) extend(ss *Session, conn *link.Conn) bool {
	was := r.stored
	if r.stored = ss.stored(); r.stored == was {
		return ss.flow.AddPending(0) > 0
	}
	r.extensions++
	if r.extensions <= maxExtensions {
		return true
	}
	conn.Send(wire.AppendConclude) // sent on each call: the connection may be a new one
	return r.extensions <= maxExtensions+concludeExtensions
}

// stored returns a sum that changes whenever an event is stored.
func (ss *Session) stored() (sum process.Seq) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, p := range ss.procs {
		p.mu.Lock()
		sum += p.stored
		p.mu.Unlock()
	}
	return sum
}

// EndProcesses has the shim kill all processes, and waits until their records have ended.
func (ss *Session) EndProcesses(ctx context.Context) error {
	ss.mu.Lock()
	conn, procs := ss.conn, slices.Collect(maps.Values(ss.procs))
	ss.mu.Unlock()
	if conn == nil {
		return kind.New(kind.Unavailable, "reboot", string(ss.cfg.ID), "the sandbox's shim is away")
	}
	conn.Send(wire.AppendReboot)
	late := time.NewTimer(rebootTimeout)
	defer late.Stop()
	for _, p := range procs {
		select {
		case <-p.done:
		case <-ss.cfg.Instance().Done():
			return ErrShimGone
		case <-late.C:
			return kind.New(kind.Unavailable, "reboot", string(ss.cfg.ID), "a process does not end")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// EndAll ends the record of every remaining process and waits until all are stored. lost is the
// end of those whose shim has not reported another one.
func (ss *Session) EndAll(ctx context.Context, lost process.Exit) error {
	ss.mu.Lock()
	procs := slices.Collect(maps.Values(ss.procs))
	ss.mu.Unlock()
	procs = append(procs, ss.orphans()...)
	for _, p := range procs {
		p.lose(lost)
	}
	for _, p := range procs {
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
