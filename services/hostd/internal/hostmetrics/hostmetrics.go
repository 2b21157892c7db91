// Package hostmetrics exposes a host's machine, its warm pool and its counters as metrics. They
// outlive a run of the host, so that a counter does not restart with the next epoch.
package hostmetrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/cpustat"
	"github.com/millrace/millrace/services/hostd/internal/disk"
	"github.com/millrace/millrace/services/hostd/internal/machine"
	"github.com/millrace/millrace/services/hostd/internal/warmpool"
)

// Source is a run of the host. All fields are required.
type Source struct {
	Path     string // directory on the disk of the sandboxes
	Capacity int    // maximum number of sandboxes
	Warm     int    // maximum number of warm instances
	Counts   func() (sandboxes, processes uint32)
	Pool     func() warmpool.Stats
}

// Metrics are the metrics of a host.
type Metrics struct {
	Evicted, Fenced prometheus.Counter
	hits, misses    prometheus.Counter

	source atomic.Pointer[Source]
}

// New registers the metrics of a host. The registry must have those of no other one.
func New(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		Evicted: counter("millrace_sandboxes_evicted_total", "Sandboxes that this host ended because its disk was nearly full."),
		Fenced:  counter("millrace_host_fenced_total", "Runs of this host that ended because it was declared lost, or another host took its name."),
		hits:    counter("millrace_host_warm_hits_total", "Sandboxes that were created from a warm instance."),
		misses:  counter("millrace_host_warm_misses_total", "Sandboxes for which the warm pool had no instance."),
	}
	to.MustRegister(m.Evicted, m.Fenced, m.hits, m.misses, (*collector)(m))
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Use sets the run that is exposed from now on.
func (m *Metrics) Use(s Source) { m.source.Store(&s) }

// Acquired counts the creation of a sandbox, with a warm instance or without.
func (m *Metrics) Acquired(warm bool) {
	if warm {
		m.hits.Inc()
	} else {
		m.misses.Inc()
	}
}

var (
	descCPUs      = desc("millrace_host_cpus", "CPUs of this machine.")
	descCPU       = desc("millrace_host_cpu_seconds_total", "CPU time of this machine since its start, by state.", "state")
	descLoad      = desc("millrace_host_load1", "Load of this machine over a minute.")
	descMemory    = desc("millrace_host_memory_bytes", "Memory of this machine, by state: all of it, and what is available.", "state")
	descDisk      = desc("millrace_host_disk_bytes", "Disk of the sandboxes, by state: all of it, what is available, and what is kept free.", "state")
	descDiskFiles = desc("millrace_host_disk_files", "Inodes on the disk of the sandboxes, by state.", "state")
	descSandboxes = desc("millrace_host_sandboxes", "Sandboxes on this host.")
	descCapacity  = desc("millrace_host_capacity", "Maximum number of sandboxes on this host.")
	descProcesses = desc("millrace_host_processes", "Processes that run on this host.")
	descWarm      = desc("millrace_host_warm_instances", "Instances in the warm pool, ready for a sandbox.")
	descWarmSpecs = desc("millrace_host_warm_configurations", "Configurations of which the warm pool keeps instances.")
	descWarmLimit = desc("millrace_host_warm_limit", "Maximum number of instances in the warm pool.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// collector reads the metrics of the machine at each scrape.
type collector Metrics

// Describe implements prometheus.Collector. It describes nothing, so that it collects nothing
// either.
func (*collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	put := func(t prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { put(prometheus.GaugeValue, d, v, labels...) }
	if t, err := cpustat.Read(); err == nil {
		put(prometheus.CounterValue, descCPU, (t.Busy - t.Stolen).Seconds(), "busy")
		put(prometheus.CounterValue, descCPU, t.Idle.Seconds(), "idle")
		put(prometheus.CounterValue, descCPU, t.Stolen.Seconds(), "stolen")
	}
	gauge(descCPUs, float64(machine.CPUs()))
	gauge(descLoad, machine.Load())
	total, available := machine.Memory()
	gauge(descMemory, float64(total), "all")
	gauge(descMemory, float64(available), "available")
	s := c.source.Load()
	if s == nil {
		return
	}
	d := disk.SpaceOf(s.Path)
	gauge(descDisk, float64(d.Total), "all")
	gauge(descDisk, float64(d.Free), "available")
	gauge(descDisk, float64(d.Reserve()), "reserved")
	gauge(descDiskFiles, float64(d.Files), "all")
	gauge(descDiskFiles, float64(d.FreeFiles), "available")
	sandboxes, processes := s.Counts()
	gauge(descSandboxes, float64(sandboxes))
	gauge(descCapacity, float64(s.Capacity))
	gauge(descProcesses, float64(processes))
	warm := s.Pool()
	gauge(descWarm, float64(warm.Ready))
	gauge(descWarmSpecs, float64(warm.Specs))
	gauge(descWarmLimit, float64(s.Warm))
}
