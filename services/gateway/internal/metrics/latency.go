package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/gateway/internal/latency"
)

// Latencies are the histograms of how long operations of this gateway take.
type Latencies struct{ start, firstByte, create, resume prometheus.Histogram }

// NewLatencies returns empty histograms.
func NewLatencies() *Latencies {
	return &Latencies{
		start:     ops.Histogram("millrace_process_start_seconds", "Time from a request to start a process until it runs."),
		firstByte: ops.Histogram("millrace_process_first_byte_seconds", "Time from a request to start a process until its first output."),
		create:    ops.Histogram("millrace_sandbox_create_seconds", "Time from a request to create a sandbox until it runs."),
		resume:    ops.Histogram("millrace_sandbox_resume_seconds", "Time from a request to resume a paused sandbox until it runs."),
	}
}

// Observers returns the histograms as the core uses them.
func (l *Latencies) Observers() latency.Observers {
	return latency.Observers{Start: l.start, FirstByte: l.firstByte, Create: l.create, Resume: l.resume}
}

func (l *Latencies) all() []prometheus.Collector {
	return []prometheus.Collector{l.start, l.firstByte, l.create, l.resume}
}
