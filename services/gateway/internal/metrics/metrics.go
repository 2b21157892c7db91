package metrics

import (
	"bytes"
	"context"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/millrace/millrace/events"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/ops"
	"github.com/millrace/millrace/services/gateway/internal/webhooks"
)

// Streams counts open streams: a *stream.Streams.
type Streams interface{ Open() int }

// WebSockets counts WebSocket connections: a *websocket.Server.
type WebSockets interface {
	Open() int
	Ended(yield func(reason string, n uint64)) // calls yield with each reason and its count
}

// Commands counts the commands in the log by their outcome.
type Commands interface {
	Counts(ctx context.Context) (map[process.Outcome]uint64, error)
}

// Log reports whether each stream of the log can be written.
type Log interface{ Streams() []events.StreamHealth }

// Fleet lists the hosts.
type Fleet interface {
	All(ctx context.Context) []fleet.Host
}

// Sandboxes counts the sandboxes in the log by their phase.
type Sandboxes interface{ Phases() map[sandbox.Phase]int }

// Webhooks counts the deliveries to webhooks.
type Webhooks interface {
	WebhookTotals() webhooks.WebhookTotals
}

// Config configures a [Metrics]. All fields are required.
type Config struct {
	Role *ops.Role // receives the metrics

	Commands   Commands
	Log        Log
	Hosts      Fleet
	Sandboxes  Sandboxes
	Webhooks   Webhooks
	Streams    Streams
	WebSockets WebSockets
	Latencies  *Latencies
}

var websocketsEnded = desc("millrace_websockets_ended_total", "WebSocket connections that ended at this gateway.", "reason")

// classNames are the values of the label class, by the first digit of the status.
var classNames = [...]string{"", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Metrics implements the surface and counts requests.
type Metrics struct {
	source   Config                              // of what is folded from the log
	requests [len(classNames)]prometheus.Counter // by the first digit of the status, from 1 on
	routes   *prometheus.CounterVec
	tenants  tenants
	folded   prometheus.Counter // bytes of output
}

func newFolded() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "millrace_screen_folded_bytes_total", Help: "Output that this gateway has folded into screens.",
	})
}

// Folded counts output that was folded into a screen.
func (m *Metrics) Folded(bytes int) { m.folded.Add(float64(bytes)) }

// New returns the surface. Its metrics are those of the role: several gateways may run in one
// process.
func New(cfg Config) *Metrics {
	m := &Metrics{source: cfg, routes: newRoutes(), tenants: newTenants(), folded: newFolded()}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_http_requests_total", Help: "Requests answered by this gateway.",
	}, []string{"class"})
	for class := 1; class < len(m.requests); class++ {
		m.requests[class] = requests.WithLabelValues(classNames[class])
	}
	cfg.Role.MustRegister(
		requests, m.routes, m.tenants.counts, m.folded,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_streams_open", Help: "Streams open at this gateway.",
		}, func() float64 { return float64(cfg.Streams.Open()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "millrace_websockets_open", Help: "WebSocket connections open at this gateway.",
		}, func() float64 { return float64(cfg.WebSockets.Open()) }),
		collect(func(s scrape) {
			cfg.WebSockets.Ended(func(reason string, n uint64) { s.counter(websocketsEnded, float64(n), reason) })
		}),
		collect(m.collectLog),
	)
	cfg.Role.MustRegister(cfg.Latencies.all()...)
	return m
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
	if class := status / 100; class > 0 && class < len(m.requests) {
		m.requests[class].Inc()
		m.countRoute(c, classNames[class])
	}
	return err
}

// Get serves GET /metrics with all metrics of the role. If the log cannot be reached it returns
// the last known series of the commands, and millrace_view_caught_up is 0.
func (m *Metrics) Get(c *fiber.Ctx) error {
	families, err := m.source.Role.Gather()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return err
		}
	}
	c.Set(fiber.HeaderContentType, "text/plain; version=0.0.4; charset=utf-8")
	return c.Send(text.Bytes())
}

// collect is a collector that does not describe its series, so that registering it does not
// run it.
type collect func(scrape)

// Describe implements prometheus.Collector.
func (collect) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f collect) Collect(ch chan<- prometheus.Metric) { f(ch) }

// scrape receives the samples of one request.
type scrape chan<- prometheus.Metric

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// desc describes a metric with a fixed set of labels.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}
