package ops

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/millrace/millrace/events"
)

// Role is what one running role exposes: its metrics, and whether its services are ready. Its
// methods may be called concurrently.
type Role struct {
	*prometheus.Registry
	log logMetrics

	mu     sync.Mutex
	checks map[string]func(context.Context) error // by service; nil: it is starting
	order  []string
}

// New returns a role with the metrics of the program itself. It is ready when each of the
// named services has called [Role.Ready].
func New(role, version string, services ...string) *Role {
	r := &Role{Registry: prometheus.NewRegistry(), log: newLogMetrics(), checks: make(map[string]func(context.Context) error), order: services}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "millrace_build_info", Help: "Version of this program, of Go, and the role; the value is always 1.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version(), "role": role},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewBuildInfoCollector(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(r.log.all()...)
	return r
}

// Observers returns the metrics of a connection to the log. All connections of a role share
// them.
func (r *Role) Observers() events.Observers { return r.log.observers() }

// Ready reports that a service has started. Each request of /readyz calls check, which returns
// nil while the service works. A nil Role ignores the call.
func (r *Role) Ready(service string, check func(context.Context) error) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks[service] = check
}

// ready returns an error that names the services that are not ready.
func (r *Role) ready(ctx context.Context) error {
	r.mu.Lock()
	checks := make([]func(context.Context) error, len(r.order))
	for i, name := range r.order {
		checks[i] = r.checks[name]
	}
	r.mu.Unlock()
	var all []error
	for i, check := range checks {
		if check == nil {
			all = append(all, fmt.Errorf("%s is starting", r.order[i]))
		} else if err := check(ctx); err != nil {
			all = append(all, fmt.Errorf("%s: %w", r.order[i], err))
		}
	}
	return errors.Join(all...)
}
