package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/cli/client"
	"github.com/millrace/millrace/internal/cli/command"
	"github.com/millrace/millrace/internal/waiting"
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
	codex       bool
	sessions    int
	backend     bool
	e2a         bool
	viewers     int
	outage      time.Duration
	pid         int
	pause       time.Duration
	fileMB      int
	creates     int
	against     string
	driver      string
	rounds      int
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
	f      benchFlags
	c      *client.Client
	sbx    string
	server process // a local server
	binary string  // the exec-server to measure; empty: this one
	out    []metric
}

// scenario is something that bench can measure.
type scenario struct {
	name, about string
	run         func(*bench, context.Context) error
	by          runBy
}

// runBy says what runs a scenario that is not named: a set of its constants.
type runBy uint8

const (
	byDefault runBy = 1 << iota
	byCodex         // --codex
	byBackend       // --backendai
	byE2A           // --e2a

	byBoth = byDefault | byCodex
)

// scenarios returns what bench can measure, in the order of a run.
func scenarios() []scenario {
	return []scenario{
		{"tails", "idle tails: memory per tail; runs first, while the server is fresh", (*bench).idleTails, byDefault},
		{"codex-idle", "idle sessions of codex: memory per session", byCodexBench(codexBench.idle), byCodex},
		{"start", "Start of `true`: to the first event, and to the end", (*bench).startTrue, byBoth},
		{"codex-start", "the same by codex's protocol", byCodexBench(codexBench.start), byCodex},
		{"codex-stdio", "the same with an exec-server of its own", byCodexBench(codexBench.stdio), byCodex},
		{"login", "Start of `bash -l -c`: to the first byte", (*bench).startLogin, byDefault},
		{"rate", "commands per second with 1, 4 and 16 in flight", (*bench).rate, byDefault},
		{"lines", "one stream of short lines", (*bench).streamLines, byDefault},
		{"bulk", "one stream of bulk output", (*bench).streamBulk, byBoth},
		{"codex-bulk", "the same by codex's protocol", byCodexBench(codexBench.bulk), byCodex},
		{"codex-backlog", "bulk output of a time without a client, after its return", byCodexBench(codexBench.backlog), byCodex},
		{"list", "unary List of processes", (*bench).list, byDefault},
		{"echo", "time from a key press at a terminal to its echo", (*bench).echo, byBoth | byBackend},
		{"codex-echo", "the same by codex's protocol", byCodexBench(codexBench.echo), byCodex},
		{"codex-outage", "sessions of codex resumed after an outage", byCodexBench(codexBench.outage), byCodex},
		{"resume", "first byte after resuming at a random event on another gateway", (*bench).resume, byDefault},
		{"commands", "many commands, one line per 10 ms each: delivery time", (*bench).manyCommands, byDefault},
		{"readers", "one command, one line per 10 ms, many readers: delivery time", (*bench).manyReaders, byDefault},
		{"files", "a file up and down", (*bench).files, byDefault},
		{"page", "first page of /v1/processes, after all the commands above", (*bench).page, byDefault},
		{"create", "sandboxes created one after another, and all at once", (*bench).create, byDefault | byBackend},
		{"backendai-create", "sessions of Backend.AI created one after another", byBackendBench((*backendBench).creates), byBackend},
		{"backendai-run", "a run of `echo` on WebSocket", byBackendBench((*backendBench).runs), byBackend},
		{"backendai-echo", "echo by Backend.AI's terminals", byBackendBench((*backendBench).echo), byBackend},
		{"backendai-return", "return to a terminal with 1 MiB of history", byBackendBench((*backendBench).returns), byBackend},
		{"backendai-viewers", "many viewers of one terminal at 1 MB/s: delivery time", byBackendBench((*backendBench).viewers), byBackend},
		{"backendai-tunnel", "bytes through a tunnel to a service", byBackendBench((*backendBench).tunnel), byBackend},
		{"e2a-idle", "idle connections to sessions of e2a: memory per connection", byE2ABench((*e2aBench).idle), byE2A},
		{"e2a-create", "sandboxes and sessions of e2a created one after another", byE2ABench((*e2aBench).creates), byE2A},
		{"e2a-connect", "upgrade to a WebSocket of a session, and its first message", byE2ABench((*e2aBench).connects), byE2A},
		{"e2a-echo", "messages that the runtime of a session returns", byE2ABench((*e2aBench).echo), byE2A},
		{"e2a-request", "the smallest request with a key", byE2ABench((*e2aBench).requests), byE2A},
		{"e2a-rotate", "rotation of a bundle of connected sessions", byE2ABench((*e2aBench).rotate), byE2A},
		{"noisy", "start of `true` beside a sandbox that overloads CPU, memory or disk", (*bench).besideNoise, byDefault},
	}
}

// Command returns the command bench.
func Command(a *command.Env) *cobra.Command {
	b := bench{Env: a}
	var about strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&about, "  %-17s %s\n", s.name, s.about)
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
	f.IntVar(&b.f.mib, "mib", 200, "output of lines, bulk, backendai-tunnel and those of codex in MiB")
	f.IntVar(&b.f.events, "events", 100_000, "number of writes in the record of resume")
	f.IntVar(&b.f.commands, "commands", 100, "number of concurrent commands in commands")
	f.IntSliceVar(&b.f.readers, "readers", []int{1, 100}, "numbers of concurrent readers in readers")
	f.IntVar(&b.f.tails, "tails", 1000, "number of idle tails")
	f.BoolVar(&b.f.codex, "codex", false, "run the scenarios of codex, and those they compare with")
	f.BoolVar(&b.f.backend, "backendai", false, "run the scenarios of Backend.AI, and those they compare with")
	f.BoolVar(&b.f.e2a, "e2a", false, "run the scenarios of e2a")
	f.IntVar(&b.f.viewers, "viewers", 200, "number of viewers in backendai-viewers")
	f.IntVar(&b.f.sessions, "sessions", 1000, "number of sessions in codex-idle")
	f.DurationVar(&b.f.outage, "outage", 8*time.Second, "time without a connection in codex-outage")
	f.IntVar(&b.f.pid, "pid", 0, "process id of the server to measure (default the up of the data directory)")
	f.DurationVar(&b.f.pause, "pause", 3*time.Millisecond, "pause between two operations of one client, as clients make; 0 for none")
	f.IntVar(&b.f.fileMB, "file-mb", 100, "size of the file of files in MB")
	f.IntVar(&b.f.creates, "creates", 20, "number of sandboxes in create, and of sessions in those of e2a")
	f.StringVar(&b.f.against, "against", "", "another millrace binary: start both, measure them in turn, print both and the ratio")
	f.StringVar(&b.f.driver, "driver", "namespace", "driver of the servers that --against and codex-stdio start")
	f.IntVar(&b.f.rounds, "rounds", 3, "measurements of each binary with --against; the result is the median")
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
	if b.f.against != "" {
		return runAgainst(ctx, b, asJSON)
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
	b.server = b.findServer()
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
		if !b.f.chosen(&s) {
			continue
		}
		b.Notef("%s: %s", s.name, s.about)
		if err := b.measure(ctx, s.name, s.run); err != nil {
			return err
		}
	}
	if asJSON {
		return b.WriteJSON(b.out)
	}
	rows := make([][]string, len(b.out))
	for i, m := range b.out {
		rows[i] = []string{m.Scenario, m.Name, format(m.Value), m.Unit}
	}
	return b.Table([]string{"SCENARIO", "WHAT", "VALUE", "UNIT"}, rows)
}

// chosen reports whether a scenario is to be run.
func (f *benchFlags) chosen(s *scenario) bool {
	if len(f.only) > 0 {
		return slices.Contains(f.only, s.name)
	}
	by := byDefault
	switch {
	case f.codex:
		by = byCodex
	case f.backend:
		by = byBackend
	case f.e2a:
		by = byE2A
	}
	return s.by&by != 0
}

// measure runs one scenario and names its metrics after it.
func (b *bench) measure(ctx context.Context, name string, run func(*bench, context.Context) error) error {
	at := len(b.out)
	if err := run(b, ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := at; i < len(b.out); i++ {
		b.out[i].Scenario = name
	}
	return nil
}

// paused waits for the pause between two operations, and reports whether ctx has not ended.
func (f *benchFlags) paused(ctx context.Context) bool {
	return f.pause == 0 || waiting.Sleep(ctx, f.pause)
}

func format(v float64) string { return strconv.FormatFloat(v, 'f', digits(v), 64) }

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
	if b.f.count < 1 || b.f.seconds <= 0 || b.f.mib < 1 || b.f.commands < 1 || b.f.tails < 1 || b.f.sessions < 1 || b.f.viewers < 1 || b.f.outage < 0 || b.f.events < 1 || b.f.fileMB < 1 || b.f.creates < 1 || b.f.rounds < 1 || b.f.every < 0 || b.f.pause < 0 {
		return errors.New("counts must be at least 1, and times must not be negative")
	}
	return nil
}

// findServer returns the process id of the server whose memory and CPU are measured: --pid,
// else the process that locks the data directory; 0 if unknown.
func (b *bench) findServer() process {
	if b.f.pid != 0 {
		return process(b.f.pid)
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
	return process(pid)
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
