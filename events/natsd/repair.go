package natsd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/internal/waiting"
)

const (
	minFree           = 16 << 20               // bytes that must fit on the disk before the server is restarted
	freeCheckInterval = 500 * time.Millisecond // interval of checks for disk space
	repairPause       = 5 * time.Second        // before the second restart; doubled before each further one
	maxRepairPause    = time.Minute            // up to this
	calmPeriod        = 5 * time.Minute        // without a restart, after which the pause is reset

	// futileRestarts is how often the server is restarted because of the same write errors.
	// After that the files count as damaged, because another restart would read the same
	// files.
	futileRestarts = 2
	// repeatLog is how often a lasting problem is logged.
	repeatLog = time.Minute
)

// repairer keeps a server writable. It belongs to one goroutine.
type repairer struct {
	*Server
	broken   []problem // found by the last check
	failedAt time.Time // time of a logged write error that no check has explained; zero: none
	futile   map[string]int
	pause    time.Duration
	last     time.Time // of the last restart
	logged   time.Time
	reports  reporter
	lasting  lasting
	stuck    repeated
}

// repair restarts the server where that helps: after a failed write, as on a full disk, the
// server does not write a stream until it restarts; a server that started on a full disk
// keeps the limit of that time; and a server that leads the copies of a stream, but waits to
// catch up with a leader that was killed, waits for ever, so that the others elect none.
// A restart loses nothing: messages that could not be
// stored were not acknowledged, and their senders retry.
//
// A stream that cannot be written although there is disk space has damaged files. In a
// cluster they are moved aside once the other copies are known to be complete, and the
// server gets a new copy from those. Otherwise the server runs on without that stream,
// which is logged and reported on fleet.StoreSubject.
func (s *Server) repair(ctx context.Context) {
	defer close(s.repairDone)
	m := &repairer{Server: s, futile: make(map[string]int)}
	m.reports.server = s.cfg.name()
	defer m.reports.close()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.writeFailed:
			if m.failedAt.IsZero() {
				m.failedAt = time.Now()
			}
		case <-s.stuck:
			if m.stuck.lasts(time.Now()) && !m.restart(ctx, nil) {
				return
			}
			continue
		case <-ticker.C:
		case <-s.limitReached:
			if s.limit() >= s.given+s.given/4 && !m.restart(ctx, nil) {
				return
			}
			continue // otherwise it is as full as its limit allows
		}
		if !m.check(ctx) {
			return
		}
	}
}

// check finds streams that cannot be stored, reports them, and repairs what it can. It
// returns false if the server cannot continue.
func (m *repairer) check(ctx context.Context) bool {
	now, ns := time.Now(), m.ns.Load()
	if !ns.Running() { // it could not be started again
		return m.restart(ctx, nil)
	}
	found := problems(ns)
	all := m.lasting.see(now, found)
	m.reports.publish(m.Server, all)
	m.broken = slices.DeleteFunc(all, func(p problem) bool { return !p.broken })
	if len(m.broken) == 0 {
		if now.Sub(m.last) > calmPeriod {
			clear(m.futile)
		}
		if m.failedAt.IsZero() || blind(found) && now.Sub(m.failedAt) < lagTolerance {
			return true
		}
		return m.restart(ctx, nil) // because of a consumer, or of the cluster's log
	}
	for _, p := range m.broken {
		if noSpace(p.text) || m.futile[p.stream] < futileRestarts {
			return m.restart(ctx, m.broken)
		}
	}
	damaged := m.replaceable(ctx)
	if len(damaged) > 0 {
		return m.rebuild(ctx, damaged)
	}
	m.logBroken(now)
	return true
}

// logBroken logs the streams that cannot be stored and that the repair has given up.
func (m *repairer) logBroken(now time.Time) {
	if now.Sub(m.logged) < repeatLog {
		return
	}
	m.logged = now
	for _, p := range m.broken {
		m.logger().Errorf("stream %q cannot be written, and restarts do not help: %s", p.stream, p.text)
	}
}

// restart restarts the server once the disk has space, with increasing pauses. It returns
// false if the server cannot continue.
func (m *repairer) restart(ctx context.Context, because []problem) bool {
	pause := max(min(2*m.pause, maxRepairPause), repairPause)
	if time.Since(m.last) > calmPeriod {
		pause = 0
	}
	m.pause = pause
	if !waiting.Sleep(ctx, pause) {
		return false
	}
	for !m.hasSpace() {
		if !waiting.Sleep(ctx, freeCheckInterval) {
			return false
		}
	}
	for _, p := range because {
		m.logger().Errorf("restart because stream %q cannot be written: %s", p.stream, p.text)
		if !noSpace(p.text) {
			m.futile[p.stream]++
		}
	}
	return m.restartWith(ctx, func() error { return nil })
}

// restartWith stops the server, calls between, and starts the server. It returns false if the
// server cannot continue; if it does not start, the next check tries again.
func (m *repairer) restartWith(ctx context.Context, between func() error) bool {
	defer func() { m.last, m.failedAt = time.Now(), time.Time{} }()
	m.reports.close()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.stopTimeout)
	defer cancel()
	if err := m.shutdown(within, (*server.Server).Shutdown); err != nil {
		m.fail <- fmt.Errorf("nats server: restart: %w", err)
		return false
	}
	select {
	case <-m.writeFailed: // from the stopped server
	default:
	}
	if err := between(); err != nil {
		m.logger().Errorf("rebuild a damaged stream: %v", err)
	}
	ns, err := m.start()
	if err != nil {
		m.logger().Errorf("restart: %v", err)
		return true
	}
	m.ns.Store(ns)
	m.logger().Warnf("restarted after failed writes")
	return true
}

// hasSpace reports whether the disk has space.
func (s *Server) hasSpace() bool {
	f, err := os.Create(filepath.Join(s.cfg.Dir, ".room"))
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 1<<20)
	for range minFree / len(block) {
		if _, err := f.Write(block); err != nil {
			return false
		}
	}
	return f.Sync() == nil
}

// isWriteError reports whether a log line of the server means that a stream, a consumer, or
// the log of a cluster cannot be written. The server reports it in no other way.
func isWriteError(line string) bool {
	return strings.Contains(line, "write error") || strings.Contains(line, "will be DISABLED")
}
