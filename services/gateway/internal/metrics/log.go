package metrics

import (
	"context"
	"time"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
)

// The names of the command series are fixed (C-040).
var (
	descStarted  = desc("coppice_commands_started_total", "Commands started.")
	descFinished = desc("coppice_commands_finished_total", "Commands finished, by status.", "status")
	descActive   = desc("coppice_commands_active", "Commands running.")

	descCaughtUp = desc("millrace_view_caught_up", "Whether the view has caught up with the log.")
	descSync     = desc("millrace_view_sync_seconds", "How long the view took to catch up with the log.")
	descWritable = desc("millrace_stream_writable", "Whether a stream of the log can be written: 0 is an outage.", "stream")
	descDamaged  = desc("millrace_stream_damaged_copies", "NATS servers that cannot store a stream although others can.", "stream")

	descBytes    = desc("millrace_stream_bytes", "Bytes stored in a stream of the log.", "stream")
	descMaxBytes = desc("millrace_stream_limit_bytes", "Maximum bytes of a stream of the log; streams without a limit have no series.", "stream")
	descLed      = desc("millrace_stream_led", "Whether the leader of a stream answered the last check.", "stream")
	descBehind   = desc("millrace_stream_replicas_behind", "Replicas of a stream that are offline or not up to date.", "stream")
	descReplLag  = desc("millrace_stream_replica_lag", "Operations by which the last replica of a stream is behind its leader.", "stream")

	descHosts         = desc("millrace_hosts", "Hosts by the state of their lease.", "state")
	descHostProcesses = desc("millrace_hosts_processes", "Processes that live hosts report as running.")
	descSandboxes     = desc("millrace_sandboxes", "Sandboxes in the log, by phase.", "phase")

	descAttempts = desc("millrace_webhook_attempts_total", "Requests sent to webhooks.")
	descSettled  = desc("millrace_webhook_events_total", "Events settled for webhooks, by result.", "result")
	descLag      = desc("millrace_webhook_lag_events", "Events waiting for delivery.")
	descLagging  = desc("millrace_webhooks_lagging", "Webhooks with events waiting for delivery.")
	descSpans    = desc("millrace_spans_total", "Spans of commands settled for the OpenTelemetry collector, by result.", "result")
)

// syncTimeout bounds how long a scrape waits until the view has caught up with the log.
const syncTimeout = 2 * time.Second

// collectLog collects everything that is folded from the log.
func (m *Metrics) collectLog(s scrape) {
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	began := time.Now()
	counts, err := m.source.Commands.Counts(ctx)
	s.gauge(descSync, time.Since(began).Seconds())
	s.gauge(descCaughtUp, flag(err == nil))
	commands(s, counts)
	m.stored(s)
	m.hosts(ctx, s)
	m.sandboxes(s)
	m.webhooks(s)
}

func commands(s scrape, counts map[process.Outcome]uint64) {
	var started uint64
	for _, n := range counts {
		started += n
	}
	s.counter(descStarted, float64(started))
	for _, o := range [...]process.Outcome{process.OutcomeOK, process.OutcomeError, process.OutcomeKilled} {
		s.counter(descFinished, float64(counts[o]), string(o))
	}
	s.gauge(descActive, float64(counts[process.OutcomeActive]))
}

// stored collects whether each stream is writable: that metric is the one to alert on.
func (m *Metrics) stored(s scrape) {
	for _, h := range m.source.Log.Streams() {
		if h.Stream != "" {
			s.gauge(descWritable, flag(h.Blocked == ""), h.Stream)
			s.gauge(descLed, flag(h.Led), h.Stream)
			usage(s, &h)
		}
		s.gauge(descDamaged, float64(len(h.Damaged)), h.Stream)
	}
}

func usage(s scrape, h *events.StreamHealth) {
	u := &h.Usage
	s.gauge(descBytes, float64(u.Bytes), h.Stream)
	if u.MaxBytes > 0 {
		s.gauge(descMaxBytes, float64(u.MaxBytes), h.Stream)
	}
	s.gauge(descBehind, float64(u.Behind), h.Stream)
	s.gauge(descReplLag, float64(u.Lag), h.Stream)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *Metrics) hosts(ctx context.Context, s scrape) {
	var alive, starting, draining, silent, gone, processes float64
	now := time.Now()
	for _, h := range m.source.Hosts.All(ctx) {
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
	s.gauge(descHosts, alive, "alive")
	s.gauge(descHosts, starting, "starting")
	s.gauge(descHosts, draining, "draining")
	s.gauge(descHosts, silent, "silent")
	s.gauge(descHosts, gone, "gone")
	s.gauge(descHostProcesses, processes)
}

func (m *Metrics) sandboxes(s scrape) {
	counts := m.source.Sandboxes.Phases()
	for _, p := range [...]sandbox.Phase{sandbox.PhaseRequested, sandbox.PhaseQueued, sandbox.PhasePlaced, sandbox.PhaseRunning, sandbox.PhasePausing, sandbox.PhasePaused,
		sandbox.PhaseResuming, sandbox.PhaseStopping,
		sandbox.PhaseRefused, sandbox.PhaseDestroyed, sandbox.PhaseLost, sandbox.PhaseFailed} {
		s.gauge(descSandboxes, float64(counts[p]), string(p))
	}
}

// webhooks collects the totals of webhook deliveries, including removed webhooks.
func (m *Metrics) webhooks(s scrape) {
	n := m.source.Webhooks.WebhookTotals()
	s.counter(descAttempts, float64(n.Attempts))
	s.counter(descSettled, float64(n.Done), "delivered")
	s.counter(descSettled, float64(n.GivenUp), "failed")
	s.gauge(descLag, float64(n.Lag))
	s.gauge(descLagging, float64(n.Lagging))
	if n.Spans.Rev > 0 {
		s.counter(descSpans, float64(n.Spans.Done), "exported")
		s.counter(descSpans, float64(n.Spans.GivenUp), "failed")
	}
}
