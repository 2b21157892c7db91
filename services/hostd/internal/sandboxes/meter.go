package sandboxes

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	usagemeter "github.com/millrace/millrace/events/meter"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/usage"
)

// meter keeps the fact of what a sandbox used up to date in the log. A sandbox that never ran, and
// one of a template build, has none.
type meter struct {
	store  *usagemeter.Store
	tenant string
	id     sandbox.ID

	mu      sync.Mutex
	started time.Time  // when the sandbox ran first; zero: it never did
	known   bool       // stored is what the log has
	stored  usage.Fact // Rev 0: the log has none
	now     usage.Fact // stored, with what was measured since
}

func newMeter(store *usagemeter.Store, s *sandbox.State) *meter {
	m := &meter{store: store, tenant: s.Tenant, id: s.ID}
	m.start(s)
	return m
}

// start says that the sandbox may run.
func (m *meter) start(s *sandbox.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Request.Build == "" {
		m.started = s.Started
	}
}

// measure adds a measurement of the CPU time since the sandbox was created, and stores the fact if
// it has changed enough. If that fails, the next call has the same usage.
func (m *meter) measure(ctx context.Context, at time.Time, cpu time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started.IsZero() {
		return nil
	}
	if err := m.load(ctx); err != nil || m.stored.Over() {
		return err
	}
	if m.now = m.now.Measure(at, cpu); !m.now.Due(&m.stored) {
		return nil
	}
	return m.put(ctx, m.now)
}

// end stores the end of the sandbox. lastKnown: it could not be measured at its end. It retries
// through outages until ctx ends.
func (m *meter) end(ctx context.Context, at time.Time, lastKnown bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started.IsZero() {
		return nil
	}
	for {
		if err := m.load(ctx); err != nil || m.stored.Over() {
			return err
		}
		if err := m.put(ctx, m.now.End(at, lastKnown)); !kind.Is(err, kind.Conflict) {
			return err
		}
	}
}

// load reads the fact in the log, unless it is known. The meter is locked.
func (m *meter) load(ctx context.Context) error {
	if m.known {
		return nil
	}
	f, ok, err := m.store.Read(ctx, m.tenant, string(m.id))
	if err != nil {
		return err
	}
	if !ok {
		f = usage.New(m.tenant, string(m.id), usage.Sandbox, m.started)
	}
	m.known, m.stored, m.now = true, f, f
	return nil
}

// put stores a fact. After a failure the log may or may not have it. The meter is locked.
func (m *meter) put(ctx context.Context, f usage.Fact) error {
	err := m.store.Put(ctx, &f)
	if m.known = err == nil; m.known {
		m.stored, m.now = f, f
	}
	return err
}

// meterNow measures the sandbox and reports whether that succeeded: if not, the next measurement
// has the totals.
func (sb *hostSandbox) meterNow(ctx context.Context) bool {
	if sb.current.Instance() == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	s, err := sb.current.Instance().Stats(ctx)
	if err != nil || s.CPU == 0 {
		return false
	}
	return sb.meter.measure(ctx, time.Now(), s.CPU) == nil
}
