// Package metrics serves GET /metrics in Prometheus's text format. The series of the
// commands are folded from the log, the same at every gateway and after any restart:
// started = ok + error + killed + active, always.
//
// No label value comes from a client: the number of series is fixed.
package metrics

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/operations"
)

// Streams counts open streams: a *stream.Streams.
type Streams interface{ Open() int }

// Metrics implements the surface and counts requests.
type Metrics struct {
	ops     *operations.Operations
	streams Streams
	classes [6]atomic.Uint64 // requests, by first digit of the status
}

// New returns the surface.
func New(ops *operations.Operations, streams Streams) *Metrics {
	return &Metrics{ops: ops, streams: streams}
}

// Count is middleware that counts requests. A stream counts when it begins.
func (m *Metrics) Count(c *fiber.Ctx) error {
	err := c.Next()
	status := c.Response().StatusCode()
	if err != nil {
		// The app's error handler has not run yet; call it here so that the sent status is
		// counted.
		if err = c.App().ErrorHandler(c, err); err == nil {
			status = c.Response().StatusCode()
		}
	}
	if class := status / 100; class > 0 && class < len(m.classes) {
		m.classes[class].Add(1)
	}
	return err
}

// Get serves GET /metrics. If the log cannot be reached it returns the last known series of
// the commands, and millrace_view_caught_up is 0.
func (m *Metrics) Get(c *fiber.Ctx) error {
	began := time.Now()
	counts, err := m.ops.Procs.Counts(c.UserContext())
	took := time.Since(began)
	var t text
	t.commands(counts)
	caughtUp := 1.0
	if err != nil {
		caughtUp = 0
	}
	t.family("millrace_view_caught_up", "gauge", "Whether the view has caught up with the log.").value("", caughtUp)
	t.family("millrace_view_sync_seconds", "gauge", "How long the view took to catch up with the log.").value("", took.Seconds())
	t.family("millrace_streams_open", "gauge", "Streams open at this gateway.").value("", float64(m.streams.Open()))
	m.stored(&t)
	m.hosts(c, &t)
	m.sandboxes(&t)
	m.webhooks(&t)
	f := t.family("millrace_http_requests_total", "counter", "Requests answered by this gateway.")
	for class := 1; class < len(m.classes); class++ {
		f.value(`class="`+strconv.Itoa(class)+`xx"`, float64(m.classes[class].Load()))
	}
	t.family("go_goroutines", "gauge", "Goroutines of this process.").value("", float64(runtime.NumGoroutine()))
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.family("go_memstats_heap_inuse_bytes", "gauge", "Heap in use by this process.").value("", float64(mem.HeapInuse))
	c.Set(fiber.HeaderContentType, "text/plain; version=0.0.4; charset=utf-8")
	return c.Send(t.b)
}

// commands writes the three command series, whose names are fixed (C-040).
func (t *text) commands(counts map[process.Outcome]uint64) {
	var started uint64
	for _, n := range counts {
		started += n
	}
	t.family("coppice_commands_started_total", "counter", "Commands started.").value("", float64(started))
	f := t.family("coppice_commands_finished_total", "counter", "Commands finished, by status.")
	for _, o := range [...]process.Outcome{process.OutcomeOK, process.OutcomeError, process.OutcomeKilled} {
		f.value(`status="`+string(o)+`"`, float64(counts[o]))
	}
	t.family("coppice_commands_active", "gauge", "Commands running.").value("", float64(counts[process.OutcomeActive]))
}

// stored writes whether each stream is writable: the first metric is the one to alert on.
func (m *Metrics) stored(t *text) {
	all := m.ops.Core.Log.Streams()
	f := t.family("millrace_stream_writable", "gauge", "Whether a stream of the log can be written: 0 is an outage.")
	for _, s := range all {
		if s.Stream != "" {
			f.value(`stream="`+s.Stream+`"`, flag(s.Blocked == ""))
		}
	}
	f = t.family("millrace_stream_damaged_copies", "gauge", "NATS servers that cannot store a stream although others can.")
	for _, s := range all {
		f.value(`stream="`+s.Stream+`"`, float64(len(s.Damaged)))
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *Metrics) hosts(c *fiber.Ctx, t *text) {
	var alive, starting, draining, silent, gone, processes float64
	now := time.Now()
	for _, h := range m.ops.Hosts.All(c.UserContext()) {
		switch {
		case h.Gone:
			gone++
		case !h.Alive(now):
			silent++
		case h.Starting:
			starting++
		case h.Draining:
			draining++
		default:
			alive++
		}
		if h.Alive(now) {
			processes += float64(h.Processes)
		}
	}
	t.family("millrace_hosts", "gauge", "Hosts by the state of their lease.").
		value(`state="alive"`, alive).value(`state="starting"`, starting).value(`state="draining"`, draining).
		value(`state="silent"`, silent).value(`state="gone"`, gone)
	t.family("millrace_hosts_processes", "gauge", "Processes that live hosts report as running.").value("", processes)
}

func (m *Metrics) sandboxes(t *text) {
	phases := [...]sandbox.Phase{sandbox.PhaseRequested, sandbox.PhaseQueued, sandbox.PhasePlaced, sandbox.PhaseRunning, sandbox.PhasePausing, sandbox.PhasePaused,
		sandbox.PhaseResuming, sandbox.PhaseStopping,
		sandbox.PhaseRefused, sandbox.PhaseDestroyed, sandbox.PhaseLost, sandbox.PhaseFailed}
	counts := m.ops.Lifecycle.Phases()
	f := t.family("millrace_sandboxes", "gauge", "Sandboxes in the log, by phase.")
	for _, p := range phases {
		f.value(`phase="`+string(p)+`"`, float64(counts[p]))
	}
}

// webhooks writes the totals of webhook deliveries, including removed webhooks.
func (m *Metrics) webhooks(t *text) {
	n := m.ops.Webhooks.WebhookTotals()
	t.family("millrace_webhook_attempts_total", "counter", "Requests sent to webhooks.").value("", float64(n.Attempts))
	t.family("millrace_webhook_events_total", "counter", "Events settled for webhooks, by result.").
		value(`result="delivered"`, float64(n.Done)).value(`result="failed"`, float64(n.GivenUp))
	t.family("millrace_webhook_lag_events", "gauge", "Events waiting for delivery.").value("", float64(n.Lag))
	t.family("millrace_webhooks_lagging", "gauge", "Webhooks with events waiting for delivery.").value("", float64(n.Lagging))
}

// text builds Prometheus's text format.
type text struct {
	b    []byte
	name string
}

// family starts a metric.
func (t *text) family(name, kind, help string) *text {
	t.name = name
	t.b = append(t.b, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
	return t
}

// value writes a sample of the current metric.
func (t *text) value(labels string, v float64) *text {
	t.b = append(t.b, t.name...)
	if labels != "" {
		t.b = append(t.b, "{"+labels+"}"...)
	}
	t.b = append(t.b, ' ')
	t.b = strconv.AppendFloat(t.b, v, 'f', -1, 64)
	t.b = append(t.b, '\n')
	return t
}
