package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/services/hostd"
)

// stopGrace is the time that a role may take to stop beyond the sum of its own waits. It
// covers a request to NATS in flight, which has 2 s.
const stopGrace = 5 * time.Second

// gatewayBound returns the gateway's time from the signal to the exit of the program. The
// bounds of all roles exceed everything that they wait for meanwhile: a drain, a last
// lease, an append that NATS does not answer.
func gatewayBound(drain time.Duration) time.Duration {
	return cmp.Or(max(drain, 0), defaultDrain) + stopGrace
}

const (
	defaultDrain = 10 * time.Second // of gateway.Config.DrainTimeout
	shortBound   = stopGrace        // of roles without work to finish: scheduler, reaper
	hostBound    = hostd.LeaveTimeout + stopGrace
	natsBound    = natsd.StopTimeout + stopGrace
)

// runBounded runs a role. After ctx has ended, run has the time bound to return; then it
// returns an error so that the program exits. A slow NATS server, disk or client must not
// block a service manager.
func runBounded(ctx context.Context, bound time.Duration, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		stacks := make([]byte, 1<<20)
		slog.Default().Debug("stop timed out", "goroutines", string(stacks[:runtime.Stack(stacks, true)]))
		return fmt.Errorf("stop timed out: not finished %v after the signal, exiting", bound)
	}
}

// constantBound returns a constant bound.
func constantBound(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
