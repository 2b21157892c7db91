package cpushare

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// Member is a sandbox that shares the CPUs.
type Member struct {
	ID        sandbox.ID
	Instance  func() driver.Instance // returns its current instance; nil without one
	Suspended func() bool            // reports whether it is paused
	Requests  atomic.Uint64          // number of starts, inputs and connections from clients
	Log       *slog.Logger

	monitor monitor // of Run's goroutine
}

// sample measures what the sandbox has used since the last sample, if it runs. now has the
// machine's part.
func (m *Member) sample(now sample) {
	inst, ok := m.Instance().(driver.Deprioritizer)
	if !ok || m.monitor.exempt {
		return
	}
	if m.Suspended() {
		m.monitor.reset()
		return
	}
	var err error
	if now.cpu, err = inst.CPUTime(); err != nil {
		m.exempt(err)
		return
	}
	now.requests = m.Requests.Load()
	m.monitor.add(now)
}

// apply deprioritizes or restores the sandbox. A deprioritized one is set on each call, since
// a pause resets it. left and must are those of monitor.decide.
func (m *Member) apply(now time.Time, left, must bool) {
	inst, ok := m.Instance().(driver.Deprioritizer)
	if !ok || m.monitor.exempt || m.Suspended() || !m.monitor.decide(now, left, must) {
		return
	}
	if err := inst.SetDeprioritized(m.monitor.deprioritized); err != nil {
		m.exempt(err)
	}
}

// deprioritized reports whether the sandbox is deprioritized now.
func (m *Member) deprioritized() bool { return m.monitor.deprioritized && !m.Suspended() }

// exempt leaves the sandbox as it is: what fails here is not retried.
func (m *Member) exempt(err error) {
	m.monitor.reset()
	m.monitor.exempt, m.monitor.deprioritized = true, false
	if !kind.Is(err, kind.Unimplemented) && !kind.Is(err, kind.Unavailable) {
		m.Log.Warn("deprioritize sandbox failed", "sandbox", m.ID, "err", err)
	}
}
