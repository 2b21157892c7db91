package ops

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/events"
)

// logMetrics are the metrics of the connections to the log.
type logMetrics struct {
	appends, replays   prometheus.Histogram
	lost, gaps, fenced prometheus.Counter
}

func newLogMetrics() logMetrics {
	return logMetrics{
		appends: Histogram("millrace_log_append_seconds", "Time of an append to the log until it is stored, with its retries."),
		replays: Histogram("millrace_log_replay_seconds", "Time of a read of stored output by a reader that is behind."),
		lost:    counter("millrace_processes_lost_total", "Processes that this program recorded as lost: their end was not observed."),
		gaps:    counter("millrace_record_gaps_total", "Gaps in records of processes that this program stored or read."),
		fenced:  counter("millrace_appends_fenced_total", "Appends that were rejected because a newer run of the host, or another service, ended the record."),
	}
}

func (m *logMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.appends, m.replays, m.lost, m.gaps, m.fenced}
}

func (m *logMetrics) observers() events.Observers {
	return events.Observers{Append: m.appends, Replay: m.replays, Lost: m.lost, Gap: m.gaps, Fenced: m.fenced}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Histogram returns a histogram of durations in seconds. Its buckets begin with a quarter of a
// millisecond, less than an append takes, and end with 60 s, more than a client waits.
func Histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help,
		Buckets: []float64{.00025, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60},
	})
}
