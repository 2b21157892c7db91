package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/cpustat"
	"github.com/millrace/millrace/internal/hostload"
)

// noise is what a neighbour does to a sandbox.
type noise struct {
	name   string
	copies int
	script string
	host   bool // in no sandbox, and behind all else: the script is a step of internal/hostload
}

// doubles takes twice as much memory again and again, until it may not.
const doubles = "bash -c 'x=x; while :; do x=$x$x; done'"

// noises are those that bench makes. Each is held by the limit on the processes
// of its sandbox, where the driver has one, and by itself: none takes the machine
// where nothing else holds it. The first is none: by how much its figures are not 1
// the others' may be wrong. The next three are what the machine itself does to who shares
// it with a program that only counts, or takes memory and gives it back, in no sandbox, and
// goes behind all else: no sandbox whose noise does that can do better.
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

// noiseNames lists them.
func noiseNames() (names []string) {
	for _, n := range noises() {
		names = append(names, n.name)
	}
	return names
}

const (
	noisyPIDs   = 1000                   // of a noisy sandbox
	swell       = 2 * time.Second        // until the noise is at its height
	noisyRounds = 10                     // of silence and noise that count,
	mostRounds  = 3 * noisyRounds        // and with those that do not
	robbed      = 0.01                   // of the CPUs: if a hypervisor gave more to others, a round does not count
	settle      = 500 * time.Millisecond // between them
)

// besideNoise measures commands in one sandbox, alone and beside each noise in
// another.
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
		b.add("rounds that were robbed of CPUs, "+n.name, float64(t.silent.robbed+t.noisy.robbed), "")
	}
	return nil
}

// turns is what was measured in turns.
type turns struct {
	silent, noisy side
	others        time.Duration // CPU time that was used while nothing was asked for and the noise stood still
	rest          time.Duration // for how long that was so; 0: unknown
}

// side is one of the two that take turns.
type side struct {
	rounds [][]time.Duration // that count
	robbed int               // rounds that do not
}

// none reports whether rounds counted and have nothing that does.
func (s *side) none() bool {
	return len(s.rounds) > 0 && !slices.ContainsFunc(s.rounds, func(r []time.Duration) bool { return len(r) > 0 })
}

// ratio is a figure of one side against the other's, and between what it would be in nine
// of ten such runs.
type ratio struct{ found, least, most float64 }

const (
	redrawn  = 500 // times
	leftOver = 20  // one in so many runs is below, as many are above
)

// against compares the quantile q of noise and of silence. What comes once in a while, as a
// collection of garbage does, falls on one side or the other by chance: by how much that
// moves the figure is seen by drawing each side's rounds anew, from themselves (the
// bootstrap of clusters).
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
	chance := rand.New(rand.NewPCG(1, 2)) // the same for who measures the same
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

// beside measures commands in turns while a noise is made and while who makes it is
// paused: what else the machine does is the same for both, and so is what the noise
// has taken already. Each side has twice the samples of another scenario, in as many
// parts as there are rounds; the first ones of each part do not count.
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
	if !pause(ctx, swell) {
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
		if err == nil && !pause(ctx, settle) {
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

// settle lets a moment pass in silence, and notes what others compute meanwhile.
func (t *turns) settle(ctx context.Context) error {
	before, known := cpustat.Read()
	at := time.Now()
	if !pause(ctx, settle) {
		return ctx.Err()
	}
	if after, err := cpustat.Read(); known == nil && err == nil {
		t.others, t.rest = t.others+after.Since(before).Busy, t.rest+time.Since(at)
	}
	return nil
}

// round adds one round's commands, some that come first left out, if the machine had its
// CPUs meanwhile.
func (b *bench) round(ctx context.Context, s *side) error {
	p := b.share(noisyRounds / 2)
	p.every = b.f.every
	before, _ := cpustat.Read() //nolint:errcheck // then nothing is known to be stolen
	_, got, err := b.someStarts(ctx, p, "/bin/true", nil, eventStart)
	after, _ := cpustat.Read() //nolint:errcheck // as above
	if after.Since(before).StolenPart() > robbed {
		s.robbed++
		return err
	}
	s.rounds = append(s.rounds, got)
	return err
}
