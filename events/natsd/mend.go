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
)

const (
	roomWanted = 16 << 20 // bytes that must fit on the disk before the server is restarted
	roomLook   = 500 * time.Millisecond
	mendPause  = 5 * time.Second // before the second restart, twice that before the third,
	mendPauses = time.Minute     // and so on up to this,
	mendWell   = 5 * time.Minute // until no restart was needed for so long

	// vainRestarts is how often the server is restarted because of the same write errors.
	// After that the files are damaged, and another restart reads the same files.
	vainRestarts = 2
	// repeatLog is how often a problem that lasts is logged.
	repeatLog = time.Minute
)

// mender keeps a server able to store. It belongs to one goroutine.
type mender struct {
	*Server
	broken  []problem // of the last look
	hurtAt  time.Time // when a write error was logged that no look explained yet; zero: none
	vain    map[string]int
	pause   time.Duration
	last    time.Time // of the last restart
	logged  time.Time
	reports reporter
	lasting lasting
}

// mend restarts the server where a restart helps: a stream for which a write failed, as on a
// full disk, is not written again until then; and a server that started on a full disk is
// limited to what it had room for. Nothing is lost by a restart: what could not be stored was
// not acknowledged, and its sender retries.
//
// A stream that cannot be written although there is room has damaged files. In a cluster they
// are moved aside once the other copies are known to be complete, and the server gets a new
// copy from them. Otherwise the server runs on without that stream: it is logged, and
// reported on fleet.StoreSubject.
func (s *Server) mend(ctx context.Context) {
	defer close(s.over)
	m := &mender{Server: s, vain: make(map[string]int)}
	m.reports.server = s.cfg.name()
	defer m.reports.close()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hurt:
			if m.hurtAt.IsZero() {
				m.hurtAt = time.Now()
			}
		case <-look.C:
		case <-s.full:
			if s.limit() >= s.given+s.given/4 && !m.restart(ctx, nil) {
				return
			}
			continue // else it is as full as it was told to get
		}
		if !m.look(ctx) {
			return
		}
	}
}

// look finds out what cannot be stored, reports it, and does what helps. It reports whether
// the server can go on.
func (m *mender) look(ctx context.Context) bool {
	now, ns := time.Now(), m.ns.Load()
	if !ns.Running() { // it could not be started again
		return m.restart(ctx, nil)
	}
	found := problems(ns)
	all := m.lasting.see(now, found)
	m.reports.publish(m.Server, all)
	m.broken = slices.DeleteFunc(all, func(p problem) bool { return !p.broken })
	if len(m.broken) == 0 {
		if now.Sub(m.last) > mendWell {
			clear(m.vain)
		}
		if m.hurtAt.IsZero() || blind(found) && now.Sub(m.hurtAt) < laggard {
			return true
		}
		return m.restart(ctx, nil) // because of a consumer, or of the log of the cluster
	}
	for _, p := range m.broken {
		if noSpace(p.text) || m.vain[p.stream] < vainRestarts {
			return m.restart(ctx, m.broken)
		}
	}
	damaged := m.replaceable(ctx)
	if len(damaged) > 0 {
		return m.rebuild(ctx, damaged)
	}
	m.complain(now)
	return true
}

// complain logs what cannot be stored and that nothing is tried any more.
func (m *mender) complain(now time.Time) {
	if now.Sub(m.logged) < repeatLog {
		return
	}
	m.logged = now
	for _, p := range m.broken {
		m.logger().Errorf("stream %q cannot be written, and restarts do not help: %s", p.stream, p.text)
	}
}

// restart restarts the server when the disk has room, and later each time. It reports whether
// the server can go on.
func (m *mender) restart(ctx context.Context, because []problem) bool {
	pause := max(min(2*m.pause, mendPauses), mendPause)
	if time.Since(m.last) > mendWell {
		pause = 0
	}
	m.pause = pause
	if !rest(ctx, pause) {
		return false
	}
	for !m.room() {
		if !rest(ctx, roomLook) {
			return false
		}
	}
	for _, p := range because {
		m.logger().Errorf("restart because stream %q cannot be written: %s", p.stream, p.text)
		if !noSpace(p.text) {
			m.vain[p.stream]++
		}
	}
	return m.again(ctx, func() error { return nil })
}

// again stops the server, calls between, and starts the server. It reports whether the server
// can go on; if it cannot start, the next look tries again.
func (m *mender) again(ctx context.Context, between func() error) bool {
	defer func() { m.last, m.hurtAt = time.Now(), time.Time{} }()
	m.reports.close()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.stopTimeout)
	defer cancel()
	if err := m.shut(within, (*server.Server).Shutdown); err != nil {
		m.fail <- fmt.Errorf("nats server: restart: %w", err)
		return false
	}
	select {
	case <-m.hurt: // by the server that has stopped
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
	m.logger().Warnf("restarted, because it could not store everything before")
	return true
}

// room reports whether the disk takes something.
func (s *Server) room() bool {
	f, err := os.Create(filepath.Join(s.cfg.Dir, ".room"))
	if err != nil {
		return false
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the next look takes what is left
	defer f.Close()           //nolint:errcheck // Sync told
	block := make([]byte, 1<<20)
	for range roomWanted / len(block) {
		if _, err := f.Write(block); err != nil {
			return false
		}
	}
	return f.Sync() == nil
}

func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// isWriteError reports whether a log line of the server says that something cannot be
// written: a stream, a consumer, or the log of a cluster. There is no other notice of it.
func isWriteError(line string) bool {
	return strings.Contains(line, "write error") || strings.Contains(line, "will be DISABLED")
}
