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
		{"a flood of output", 2, "yes 0123456789abcdefghijklmnopqrstuvwxyz & yes abcdefghijklmnopqrstuvwxyz0123456789 >&2"},
		{"forks", 32, "while :; do /bin/true; done"},
		{"a fork bomb", 1, "f() { f | f & }; f; sleep 600"},
		{"a memory bomb", 1, "ulimit -v 524288; while :; do bash -c 'x=x; while :; do x=$x$x; done'; done 2>/dev/null"},
		{"a disk filler", 1, "while :; do head -c 268435456 /dev/zero >fill; rm fill; done"},
		{"many processes", 1, "i=0; while [ $i -lt 900 ]; do sleep 600 & i=$((i+1)); done; wait"},
	}
}

const (
	noisyPIDs = 1000            // of a noisy sandbox
	swell     = 2 * time.Second // until the noise is at its height
)

// besideNoise measures commands in one sandbox, alone and beside each noise in
// another.
func (b *bench) besideNoise(ctx context.Context) error {
	_, alone, err := b.starts(ctx, "/bin/true", nil, eventStart)
	if err != nil {
		return err
	}
	b.spread("alone", alone)
	for _, n := range noises() {
		got, err := b.beside(ctx, &n)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		b.spread(n.name, got)
		for _, q := range []float64{0.50, 0.99} {
			b.add(fmt.Sprintf("%s p%.0f against alone", n.name, 100*q), float64(quantile(got, q))/float64(quantile(alone, q)), "")
		}
	}
	return nil
}

// beside measures commands while a noise is made.
func (b *bench) beside(ctx context.Context, n *noise) ([]time.Duration, error) {
	spec := sandboxSpec{TemplateID: "base", Timeout: int64(benchLife / time.Second), PIDs: noisyPIDs}
	sbx, err := b.c.createSandbox(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer b.discard(ctx, b.c, sbx)
	for range n.copies {
		if _, err := b.c.start(ctx, sbx, &command{Cmd: "/bin/bash", Args: []string{"-c", n.script}}); err != nil {
			return nil, err
		}
	}
	if !pause(ctx, swell) {
		return nil, ctx.Err()
	}
	_, got, err := b.starts(ctx, "/bin/true", nil, eventStart)
	if err == nil && len(got) == 0 {
		err = fmt.Errorf("no command ended within %v s", b.f.seconds)
	}
	slices.Sort(got)
	return got, err
}
