package cli

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// noise is what a neighbour does to a sandbox.
type noise struct {
	name   string
	copies int
	script string
}

// noises are those that bench makes. Each is held by the limit on the processes
// of its sandbox, where the driver has one, and by itself: none takes the machine
// where nothing else holds it.
func noises() []noise {
	return []noise{
		{"flood", 2, "yes 0123456789abcdefghijklmnopqrstuvwxyz & yes abcdefghijklmnopqrstuvwxyz0123456789 >&2"},
		{"forks", 32, "while :; do /bin/true; done"},
		{"fork-bomb", 1, "f() { f | f & }; f; sleep 600"},
		{"memory-bomb", 1, "ulimit -v 524288; while :; do bash -c 'x=x; while :; do x=$x$x; done'; done 2>/dev/null"},
		{"disk-filler", 1, "while :; do head -c 268435456 /dev/zero >fill; rm fill; done"},
		{"many-processes", 1, "i=0; while [ $i -lt 900 ]; do sleep 600 & i=$((i+1)); done; wait"},
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
	noisyRounds = 10                     // of silence and noise
	settle      = 500 * time.Millisecond // between them
)

// besideNoise measures commands in one sandbox, alone and beside each noise in
// another.
func (b *bench) besideNoise(ctx context.Context) error {
	for _, n := range noises() {
		if len(b.f.noises) > 0 && !slices.Contains(b.f.noises, n.name) {
			continue
		}
		silent, noisy, err := b.beside(ctx, &n)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		b.spread("without "+n.name, silent)
		b.spread("beside "+n.name, noisy)
		for _, q := range []float64{0.50, 0.99} {
			b.add(fmt.Sprintf("beside %s p%.0f against without", n.name, 100*q), float64(quantile(noisy, q))/float64(quantile(silent, q)), "")
		}
	}
	return nil
}

// beside measures commands in turns while a noise is made and while who makes it is
// paused: what else the machine does is the same for both, and so is what the noise
// has taken already. Each side has twice the samples of another scenario, in as many
// parts as there are rounds; the first ones of each part do not count.
func (b *bench) beside(ctx context.Context, n *noise) (silent, noisy []time.Duration, err error) {
	spec := sandboxSpec{TemplateID: "base", Timeout: int64(benchLife / time.Second), PIDs: noisyPIDs}
	sbx, err := b.c.createSandbox(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	defer b.discard(ctx, b.c, sbx)
	for range n.copies {
		if _, err := b.c.start(ctx, sbx, &command{Cmd: "/bin/bash", Args: []string{"-c", n.script}}); err != nil {
			return nil, nil, err
		}
	}
	if !pause(ctx, swell) {
		return nil, nil, ctx.Err()
	}
	for range noisyRounds {
		if err = b.c.pauseSandbox(ctx, sbx); err == nil {
			silent, err = b.round(ctx, silent)
		}
		if err == nil {
			err = b.c.resumeSandbox(ctx, sbx, benchLife)
		}
		if err == nil {
			noisy, err = b.round(ctx, noisy)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if len(silent) == 0 || len(noisy) == 0 {
		return nil, nil, fmt.Errorf("no command ended within %v s", b.f.seconds)
	}
	slices.Sort(silent)
	slices.Sort(noisy)
	return silent, noisy, nil
}

// round adds one round's commands, some that come first left out.
func (b *bench) round(ctx context.Context, all []time.Duration) ([]time.Duration, error) {
	if !pause(ctx, settle) {
		return nil, ctx.Err()
	}
	_, got, err := b.someStarts(ctx, b.share(noisyRounds/2), "/bin/true", nil, eventStart)
	return append(all, got...), err
}
