package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/internal/ops"
)

// operation holds the settings of the address for metrics and probes.
type operation struct {
	listen, token string
}

func (o *operation) flags(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "metrics-listen", "", "address of /metrics, /livez and /readyz, as HOST:PORT (default none)")
	f.StringVar(&o.token, "metrics-token", "", "token for /metrics, required off loopback; prefer MILLRACE_METRICS_TOKEN (default none)")
}

// serve serves metrics and probes of a role, if an address is set, until the returned function
// is called. The address is used before the role starts, so that an address in use is reported
// at once, and probes see a role that is starting.
func (o *operation) serve(ctx context.Context, r *ops.Role, log *slog.Logger) (stop func(), err error) {
	if o.listen == "" {
		if o.token != "" {
			return nil, fmt.Errorf("--metrics-token: %s is required, too", "--metrics-listen")
		}
		return func() {}, nil
	}
	ln, err := ops.Listen(ctx, o.listen, o.token)
	if err != nil {
		return nil, err
	}
	log.Info("metrics served", "address", ln.Addr().String())
	// The probes of a role that drains are answered until it has ended.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Serve(serving, ln, o.token); err != nil {
			log.Error("serve metrics failed", "err", err)
		}
	})
	return func() { end(); wg.Wait() }, nil
}

// serverMetrics exposes a NATS server.
type serverMetrics struct{ srv *natsd.Server }

var (
	natsConnections = prometheus.NewDesc("millrace_nats_connections", "Connections to this NATS server.", nil, nil)
	natsSlow        = prometheus.NewDesc("millrace_nats_slow_consumers_total", "Connections that this NATS server closed because they read too slowly.", nil, nil)
	natsBytes       = prometheus.NewDesc("millrace_nats_store_bytes", "Bytes that this NATS server stores in files.", nil, nil)
	natsMaxBytes    = prometheus.NewDesc("millrace_nats_store_limit_bytes", "Maximum bytes that this NATS server stores in files.", nil, nil)
	natsMemory      = prometheus.NewDesc("millrace_nats_memory_store_bytes", "Bytes that this NATS server stores in memory.", nil, nil)
	natsStreams     = prometheus.NewDesc("millrace_nats_streams", "Streams that this NATS server has.", nil, nil)
	natsLeading     = prometheus.NewDesc("millrace_nats_streams_leading", "Streams that this NATS server leads.", nil, nil)
	natsProblems    = prometheus.NewDesc("millrace_nats_problems", "Findings of this NATS server's own health check, such as a stream that it cannot store.", nil, nil)
)

// Describe implements prometheus.Collector.
func (serverMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. A server that restarts has no metrics.
func (m serverMetrics) Collect(ch chan<- prometheus.Metric) {
	s, err := m.srv.Stats()
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(natsConnections, float64(s.Connections))
	ch <- prometheus.MustNewConstMetric(natsSlow, prometheus.CounterValue, float64(s.SlowConsumers))
	gauge(natsBytes, float64(s.Bytes))
	gauge(natsMaxBytes, float64(s.MaxBytes))
	gauge(natsMemory, float64(s.Memory))
	gauge(natsStreams, float64(s.Streams))
	gauge(natsLeading, float64(s.Leading))
	gauge(natsProblems, float64(s.Problems))
}
