package cli

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

	"github.com/millrace/millrace/internal/cpustat"
)

// benchFlags bound what bench does.
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

// metric is one figure.
type metric struct {
	Scenario string  `json:"scenario"`
	Name     string  `json:"name"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

// bench is one run of it.
type bench struct {
	*app
	f   benchFlags
	c   *client
	sbx string
	pid int // of the server, if it runs here; 0: unknown
	out []metric
}

// scenarios are what bench can measure, in the order in which it does.
func scenarios() []struct {
	name, about string
	run         func(*bench, context.Context) error
} {
	return []struct {
		name, about string
		run         func(*bench, context.Context) error
	}{
		{"tails", "idle tails: memory a tail; first, while it is clean", (*bench).idleTails},
		{"start", "Start of `true`: to the first event, and to the end", (*bench).startTrue},
		{"login", "Start of `bash -l -c`: to the first byte", (*bench).startLogin},
		{"rate", "commands a second with 1, 4 and 16 in flight", (*bench).rate},
		{"lines", "one stream of short lines", (*bench).streamLines},
		{"bulk", "one stream of bulk output", (*bench).streamBulk},
		{"echo", "a key pressed at a terminal, to its echo", (*bench).echo},
		{"resume", "first byte replayed from a random place, on the next gateway", (*bench).resume},
		{"commands", "many commands, a line each 10 ms: delivery", (*bench).manyCommands},
		{"readers", "one command, a line each 10 ms, many readers: delivery", (*bench).manyReaders},
		{"noisy", "start of `true` beside a sandbox that floods, forks or fills up", (*bench).besideNoise},
	}
}

func (a *app) benchCommand() *cobra.Command {
	b := bench{app: a}
	var about strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&about, "  %-10s %s\n", s.name, s.about)
	}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the whole path: client, gateway, NATS, host, process and back",
		Long: "Measure the whole path: client, gateway, NATS, host, process and back. The\nscenarios are\n\n" +
			about.String() + "\nTimes and counts are bounded by the flags. It only loads a gateway on this\nmachine unless told otherwise.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringSliceVar(&b.f.only, "only", nil, "scenarios to run; default: all")
	f.StringSliceVar(&b.f.noises, "noises", nil, "that noisy makes: "+strings.Join(noiseNames(), ", ")+"; default: all")
	f.DurationVar(&b.f.every, "every", 0, "that noisy starts a command; default: as soon as the last one has ended")
	f.StringVarP(&b.f.sandbox, "sandbox", "s", "", "sandbox to run in; default: one made for it")
	f.IntVar(&b.f.count, "count", 500, "of single measurements in a scenario, at most")
	f.Float64Var(&b.f.seconds, "seconds", 5, "of a scenario, at most")
	f.IntVar(&b.f.mib, "mib", 200, "of output in lines and bulk")
	f.IntVar(&b.f.events, "events", 100_000, "writes of the process whose record is resumed")
	f.IntVar(&b.f.commands, "commands", 100, "that print at once")
	f.IntSliceVar(&b.f.readers, "readers", []int{1, 100}, "of one process")
	f.IntVar(&b.f.tails, "tails", 1000, "that are idle")
	f.IntVar(&b.f.pid, "pid", 0, "process whose memory and CPU count; default: the up of the data directory")
	f.BoolVar(&b.f.allowRemote, "allow-remote", false, "load gateways on other machines too")
	return c
}

const (
	benchLife      = 30 * time.Minute // of bench's own sandboxes, once bench has gone
	benchCollector = 1000             // percent: its own collector, else at work at each eighth start, is not what is measured
)

func (b *bench) run(ctx context.Context) error {
	debug.SetGCPercent(benchCollector)
	asJSON, err := b.json()
	if err != nil {
		return err
	}
	if b.c, err = b.client(); err != nil {
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
		own, err := b.box(ctx, sandboxSpec{TemplateID: "base"})
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
		b.notef("%s: %s", s.name, s.about)
		at := len(b.out)
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i := at; i < len(b.out); i++ {
			b.out[i].Scenario = s.name
		}
	}
	if asJSON {
		return b.writeJSON(b.out)
	}
	rows := make([][]string, len(b.out))
	for i, m := range b.out {
		rows[i] = []string{m.Scenario, m.Name, strconv.FormatFloat(m.Value, 'f', digits(m.Value), 64), m.Unit}
	}
	return b.table([]string{"SCENARIO", "WHAT", "VALUE", "UNIT"}, rows)
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

// refuseRemote keeps a slip of the hand from loading somebody's gateway.
func (b *bench) refuseRemote() error {
	for _, base := range b.c.bases {
		u, err := url.Parse(base)
		if err != nil {
			return err
		}
		ip := net.ParseIP(u.Hostname())
		if !b.f.allowRemote && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("%s is not on this machine: --allow-remote to load it all the same", base)
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
				return fmt.Errorf("no %s %q: there are %s", asked.what, o, strings.Join(asked.there, ", "))
			}
		}
	}
	if b.f.count < 1 || b.f.seconds <= 0 || b.f.mib < 1 || b.f.commands < 1 || b.f.tails < 1 || b.f.events < 1 || b.f.every < 0 {
		return errors.New("counts must be at least 1, and times not below 0")
	}
	return nil
}

// server is the process that is measured beside the clock: the one given, else
// the one that holds the data directory.
func (b *bench) server() int {
	if b.f.pid != 0 {
		return b.f.pid
	}
	dir, err := b.dataDir()
	if err != nil {
		return 0
	}
	s, err := readWord(filepath.Join(dir, "lock"))
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

// spread adds a distribution's figures.
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

// quantile is the smallest value that at least the part q of sorted values does
// not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// limit is the time a scenario has.
func (b *bench) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(b.f.seconds*float64(time.Second)))
}

// usage is what a process used, as Linux tells; ok is false elsewhere.
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
	// Fields are counted after the name, which may hold anything.
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
