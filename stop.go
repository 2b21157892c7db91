package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/millrace/millrace/events/natsd"
	"github.com/millrace/millrace/services/hostd"
)

// stopGrace is how much longer than the sum of its own waits a role may take to stop.
// It covers a request to NATS that was on its way, which has 2 s.
const stopGrace = 5 * time.Second

// The bounds of the roles, from the signal to the exit of the program. Everything
// that a role waits for in the meantime has less: a drain, a last lease, an append
// that NATS does not answer.
func gatewayBound(drain time.Duration) time.Duration {
	if drain <= 0 {
		drain = defaultDrain
	}
	return drain + stopGrace
}

const (
	defaultDrain = 10 * time.Second // of gateway.Config.DrainTimeout
	shortBound   = stopGrace        // of roles that finish nothing: scheduler, reaper
	hostBound    = hostd.LeaveTimeout + stopGrace
	natsBound    = natsd.StopTimeout + stopGrace
)

// within runs a role. When ctx has ended, run has so long to return; then within
// gives up on it and returns an error, so that the program exits. What NATS, a
// disk or a client keeps waiting must not keep a service manager waiting.
func within(ctx context.Context, bound time.Duration, run func(context.Context) error) error {
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
		return fmt.Errorf("stop timed out: still busy %v after the signal, exiting", bound)
	}
}

// always is the bound of a role that no setting changes.
func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
