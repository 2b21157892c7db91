package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/cpustat"
	"github.com/millrace/millrace/internal/hostload"
	"github.com/millrace/millrace/internal/waiting"
)

// noise is one kind of load beside the measured sandbox.
type noise struct {
	name   string
	copies int
	script string
	host   bool // outside of a sandbox, with the lowest priority: script is a step of internal/hostload
}

// doubles doubles its memory until an allocation fails.
const doubles = "bash -c 'x=x; while :; do x=$x$x; done'"

// noises returns the kinds of load. Each is bounded by the process limit of its sandbox, if
// the driver enforces one, and by its own script, so that no load takes down a machine
// without limits. "nothing" is the control: its deviation from 1 is the error of the other
// figures. The host-* loads run outside of a sandbox at the lowest priority: they show the
// machine's own effect, a lower bound for sandboxes with the same load.
func noises() []noise {
	return []noise{
		{"nothing", 1, "sleep 600", false},
		{"host-loop", 1, hostload.Count, true},
		{"host-loops", runtime.NumCPU(), hostload.Count, true},
		{"host-bomb", 1, "ulimit -v 524288; " + doubles, true},
		{"flood", 2, "yes 0123456789abcdefghijklmnopqrstuvwxyz & yes abcdefghijklmnopqrstuvwxyz0123456789 >&2", false},
		{"forks", 32, "while :; do /bin/true; done", false},
		{"fork-bomb", 1, "f() { f | f & }; f; sleep 600", false},
		{"memory-bomb", 1, "ulimit -v 524288; while :; do " + doubles + "; done 2>/dev/null", false},
		{"disk-filler", 1, "while :; do head -c 268435456 /dev/zero >fill; rm fill; done", false},
		{"many-processes", 1, "i=0; while [ $i -lt 900 ]; do sleep 600 & i=$((i+1)); done; wait", false},
	}
}

// noiseNames returns the names of noises.
func noiseNames() (names []string) {
	for _, n := range noises() {
		names = append(names, n.name)
	}
	return names
}

const (
	noisyPIDs   = 1000                   // process limit of a noisy sandbox
	rampUp      = 2 * time.Second        // time until the load is at its maximum
	noisyRounds = 10                     // counted rounds of each side
	mostRounds  = 3 * noisyRounds        // maximum rounds, with those not counted
	maxStolen   = 0.01                   // maximum stolen fraction of the CPUs in a counted round
	settle      = 500 * time.Millisecond // pause between rounds
)

// besideNoise measures commands in one sandbox, alone and beside each load.
func (b *bench) besideNoise(ctx context.Context) error {
	for _, n := range noises() {
		if len(b.f.noises) > 0 && !slices.Contains(b.f.noises, n.name) {
			continue
		}
		t, err := b.beside(ctx, &n)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		b.spread("without "+n.name, slices.Concat(t.silent.rounds...))
		b.spread("beside "+n.name, slices.Concat(t.noisy.rounds...))
		if len(t.silent.rounds) > 0 && len(t.noisy.rounds) > 0 {
			for _, q := range []float64{0.50, 0.99} {
				what := fmt.Sprintf("beside %s p%.0f against without", n.name, 100*q)
				r := t.against(q)
				b.add(what, r.found, "")
				b.add(what+", at least", r.least, "")
				b.add(what+", at most", r.most, "")
			}
		}
		if t.rest > 0 {
			b.add("CPUs that others used, "+n.name, t.others.Seconds()/t.rest.Seconds(), "")
		}
		b.add("rounds that were robbed of CPUs, "+n.name, float64(t.silent.discarded+t.noisy.discarded), "")
	}
	return nil
}

// turns holds the alternating measurements without and with load.
type turns struct {
	silent, noisy side
	others        time.Duration // CPU time used by other programs while idle and the load paused
	rest          time.Duration // duration of those idle times; 0: unknown
}

// side holds the rounds of one of the two conditions.
type side struct {
	rounds    [][]time.Duration // counted rounds
	discarded int               // number of rounds not counted
}

// none reports whether there are counted rounds but no measurement in them.
func (s *side) none() bool {
	return len(s.rounds) > 0 && !slices.ContainsFunc(s.rounds, func(r []time.Duration) bool { return len(r) > 0 })
}

// ratio is a quantile with load relative to that without, and its 90 % confidence interval.
type ratio struct{ found, least, most float64 }

const (
	redrawn  = 500 // bootstrap samples
	leftOver = 20  // one in this many samples lies below the interval, and as many above
)

// against compares the quantile q with load and without. Rare events such as a garbage
// collection fall on one side or the other by chance; the cluster bootstrap, which
// resamples each side's rounds, estimates how much that changes the ratio.
func (t *turns) against(q float64) ratio {
	of := func(silent, noisy [][]time.Duration) float64 {
		s, n := slices.Concat(silent...), slices.Concat(noisy...)
		if len(s) == 0 || len(n) == 0 {
			return 0
		}
		slices.Sort(s)
		slices.Sort(n)
		return float64(quantile(n, q)) / float64(quantile(s, q))
	}
	chance := rand.New(rand.NewPCG(1, 2)) // fixed seed: equal measurements give equal results
	draw := func(rounds [][]time.Duration) [][]time.Duration {
		out := make([][]time.Duration, len(rounds))
		for i := range out {
			out[i] = rounds[chance.IntN(len(rounds))]
		}
		return out
	}
	var all []float64
	for range redrawn {
		all = append(all, of(draw(t.silent.rounds), draw(t.noisy.rounds)))
	}
	slices.Sort(all)
	return ratio{of(t.silent.rounds, t.noisy.rounds), all[redrawn/leftOver], all[redrawn-1-redrawn/leftOver]}
}

// beside measures commands in alternating rounds, with the load running and with it
// paused: other activity of the machine and memory already taken by the load affect both
// alike. Each side has twice the samples of another scenario, divided among the rounds;
// the first samples of each round are not counted.
func (b *bench) beside(ctx context.Context, n *noise) (t turns, err error) {
	begin := b.noisySandbox
	if n.host {
		begin = besideHost
	}
	noisy, err := begin(ctx, n)
	if err != nil {
		return t, err
	}
	defer noisy.end(ctx)
	if !waiting.Sleep(ctx, rampUp) {
		return t, ctx.Err()
	}
	for i := 0; i < mostRounds && min(len(t.silent.rounds), len(t.noisy.rounds)) < noisyRounds; i++ {
		if err = noisy.pause(ctx); err == nil {
			err = t.settle(ctx)
		}
		if err == nil {
			err = b.round(ctx, &t.silent)
		}
		if err == nil {
			err = noisy.resume(ctx)
		}
		if err == nil && !waiting.Sleep(ctx, settle) {
			err = ctx.Err()
		}
		if err == nil {
			err = b.round(ctx, &t.noisy)
		}
		if err != nil {
			return t, err
		}
	}
	if t.silent.none() || t.noisy.none() {
		return t, fmt.Errorf("no command ended within %v s", b.f.seconds)
	}
	return t, nil
}

// settle waits with the load paused and measures the CPU time that others use meanwhile.
func (t *turns) settle(ctx context.Context) error {
	before, known := cpustat.Read()
	at := time.Now()
	if !waiting.Sleep(ctx, settle) {
		return ctx.Err()
	}
	if after, err := cpustat.Read(); known == nil && err == nil {
		t.others, t.rest = t.others+after.Since(before).Busy, t.rest+time.Since(at)
	}
	return nil
}

// round measures one round, without its first commands. It counts the round unless a
// hypervisor gave more than the fraction robbed of the CPUs to other machines.
func (b *bench) round(ctx context.Context, s *side) error {
	p := b.share(noisyRounds / 2)
	p.every = b.f.every
	before, _ := cpustat.Read()
	_, got, err := b.someStarts(ctx, p, "/bin/true", nil, eventStart)
	after, _ := cpustat.Read()
	if after.Since(before).StolenPart() > maxStolen {
		s.discarded++
		return err
	}
	s.rounds = append(s.rounds, got)
	return err
}
