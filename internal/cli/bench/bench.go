package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/cpustat"
)

// benchFlags holds the flags of bench.
type benchFlags struct {
	only        []string
	noises      []string
	every       time.Duration
	sandbox     string
	count       int
	seconds     float64
	mib         int
	events      int
	commands    int
	readers     []int
	tails       int
	pid         int
	allowRemote bool
}

// metric is one measured value.
type metric struct {
	Scenario string  `json:"scenario"`
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

// bench is one run of the bench command.
type bench struct {
	*command.Env
	f   benchFlags
	c   *client.Client
	sbx string
	pid int // process id of a local server; 0: unknown
	out []metric
}

// scenarios returns what bench can measure, in the order of a run.
func scenarios() []struct {
	name, about string
	run         func(*bench, context.Context) error
} {
	return []struct {
		name, about string
		run         func(*bench, context.Context) error
	}{
		{"tails", "idle tails: memory per tail; runs first, while the server is fresh", (*bench).idleTails},
		{"start", "Start of `true`: to the first event, and to the end", (*bench).startTrue},
		{"login", "Start of `bash -l -c`: to the first byte", (*bench).startLogin},
		{"rate", "commands per second with 1, 4 and 16 in flight", (*bench).rate},
		{"lines", "one stream of short lines", (*bench).streamLines},
		{"bulk", "one stream of bulk output", (*bench).streamBulk},
		{"echo", "time from a key press at a terminal to its echo", (*bench).echo},
		{"resume", "first byte after resuming at a random event on another gateway", (*bench).resume},
		{"commands", "many commands, one line per 10 ms each: delivery time", (*bench).manyCommands},
		{"readers", "one command, one line per 10 ms, many readers: delivery time", (*bench).manyReaders},
		{"noisy", "start of `true` beside a sandbox that overloads CPU, memory or disk", (*bench).besideNoise},
	}
}

// Command returns the command bench.
func Command(a *command.Env) *cobra.Command {
	b := bench{Env: a}
	var about strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&about, "  %-10s %s\n", s.name, s.about)
	}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure latency and throughput end to end",
		Long: "Measure latency and throughput end to end: client, gateway, NATS, host, process and\nback. The scenarios are\n\n" +
			about.String() + "\nThe flags bound times and counts. Gateways on other machines require --allow-remote.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringSliceVar(&b.f.only, "only", nil, "scenarios to run (default all)")
	f.StringSliceVar(&b.f.noises, "noises", nil, "loads of the scenario noisy: "+strings.Join(noiseNames(), ", ")+" (default all)")
	f.DurationVar(&b.f.every, "every", 0, "interval between command starts in noisy (default one after another)")
	f.StringVarP(&b.f.sandbox, "sandbox", "s", "", "sandbox to run in (default a new one)")
	f.IntVar(&b.f.count, "count", 500, "maximum number of measurements per scenario")
	f.Float64Var(&b.f.seconds, "seconds", 5, "maximum duration of a scenario in seconds")
	f.IntVar(&b.f.mib, "mib", 200, "output of lines and bulk in MiB")
	f.IntVar(&b.f.events, "events", 100_000, "number of writes in the record of resume")
	f.IntVar(&b.f.commands, "commands", 100, "number of concurrent commands in commands")
	f.IntSliceVar(&b.f.readers, "readers", []int{1, 100}, "numbers of concurrent readers in readers")
	f.IntVar(&b.f.tails, "tails", 1000, "number of idle tails")
	f.IntVar(&b.f.pid, "pid", 0, "process id of the server to measure (default the up of the data directory)")
	f.BoolVar(&b.f.allowRemote, "allow-remote", false, "allow gateways on other machines")
	return c
}

const (
	benchLifetime  = 30 * time.Minute // timeout of bench's sandboxes if bench is killed
	benchCollector = 1000             // GOGC in percent, so that bench's own garbage collector (else at each eighth start) does not disturb
)

func (b *bench) run(ctx context.Context) error {
	debug.SetGCPercent(benchCollector)
	asJSON, err := b.JSON()
	if err != nil {
		return err
	}
	if b.c, err = b.Client(); err != nil {
		return err
	}
	if err := b.refuseRemote(); err != nil {
		return err
	}
	if err := b.known(); err != nil {
		return err
	}
	b.pid = b.server()
	b.sbx = b.f.sandbox
	if b.sbx == "" {
		own, err := b.createBenchSandbox(ctx, client.SandboxSpec{TemplateID: "base"})
		if err != nil {
			return fmt.Errorf("create sandbox: %w", err)
		}
		defer own.end(ctx)
		b.sbx = own.sbx
	}
	for _, s := range scenarios() {
		if len(b.f.only) > 0 && !slices.Contains(b.f.only, s.name) {
			continue
		}
		b.Notef("%s: %s", s.name, s.about)
		at := len(b.out)
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i := at; i < len(b.out); i++ {
			b.out[i].Scenario = s.name
		}
	}
	if asJSON {
		return b.WriteJSON(b.out)
	}
	rows := make([][]string, len(b.out))
	for i, m := range b.out {
		rows[i] = []string{m.Scenario, m.Name, strconv.FormatFloat(m.Value, 'f', digits(m.Value), 64), m.Unit}
	}
	return b.Table([]string{"SCENARIO", "WHAT", "VALUE", "UNIT"}, rows)
}

func digits(v float64) int {
	switch {
	case v >= 100:
		return 0
	case v >= 10:
		return 1
	}
	return 3
}

// refuseRemote protects remote gateways from being loaded by mistake.
func (b *bench) refuseRemote() error {
	for _, base := range b.c.Gateways() {
		u, err := url.Parse(base)
		if err != nil {
			return err
		}
		ip := net.ParseIP(u.Hostname())
		if !b.f.allowRemote && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("%s is not on this machine: set --allow-remote to load it", base)
		}
	}
	return nil
}

func (b *bench) known() error {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	for _, asked := range []struct {
		what         string
		these, there []string
	}{{"scenario", b.f.only, names}, {"noise", b.f.noises, noiseNames()}} {
		for _, o := range asked.these {
			if !slices.Contains(asked.there, o) {
				return fmt.Errorf("%s %q does not exist; choose from %s", asked.what, o, strings.Join(asked.there, ", "))
			}
		}
	}
	if b.f.count < 1 || b.f.seconds <= 0 || b.f.mib < 1 || b.f.commands < 1 || b.f.tails < 1 || b.f.events < 1 || b.f.every < 0 {
		return errors.New("counts must be at least 1, and times must not be negative")
	}
	return nil
}

// server returns the process id of the server whose memory and CPU are measured: --pid,
// else the process that locks the data directory; 0 if unknown.
func (b *bench) server() int {
	if b.f.pid != 0 {
		return b.f.pid
	}
	dir, err := b.DataDir()
	if err != nil {
		return 0
	}
	s, err := command.ReadTrimmed(filepath.Join(dir, "lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return pid
}

func (b *bench) add(name string, value float64, unit string) {
	b.out = append(b.out, metric{Name: name, Value: value, Unit: unit})
}

// spread adds the quantiles of a distribution.
func (b *bench) spread(name string, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	b.add(name+" p50", millis(quantile(all, 0.50)), "ms")
	b.add(name+" p99", millis(quantile(all, 0.99)), "ms")
	b.add(name+" max", millis(all[len(all)-1]), "ms")
	b.add(name+" samples", float64(len(all)), "")
}

// quantile returns the smallest value that at least the fraction q of the sorted values
// does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// limit returns a context that ends after the maximum duration of a scenario.
func (b *bench) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(b.f.seconds*float64(time.Second)))
}

// usage is a process's resource usage from /proc.
type usage struct {
	cpu       time.Duration
	rss, peak float64 // MiB
}

func (b *bench) usage() (u usage, ok bool) {
	if b.pid == 0 {
		return u, false
	}
	dir := filepath.Join("/proc", strconv.Itoa(b.pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, false
	}
	// Fields are counted after the name, which may contain spaces and parentheses.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime, stime = 11, 12
	for _, i := range []int{utime, stime} {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return u, false
		}
		u.cpu += time.Duration(n) * time.Second / cpustat.Ticks
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, false
	}
	for l := range strings.Lines(string(status)) {
		name, v, _ := strings.Cut(l, ":")
		n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			u.rss = n / 1024
		case name == "VmHWM":
			u.peak = n / 1024
		}
	}
	return u, true
}
