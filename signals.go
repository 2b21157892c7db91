package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// lifetime is a context that a service asks for: it ends at the first SIGTERM or
// SIGINT; at the second the program exits at once. Verbs of the client never ask
// and have signals to themselves.
type lifetime struct {
	asked atomic.Bool
	end   context.CancelCauseFunc
	ch    chan os.Signal
}

type lifetimeKey struct{}

// errInterrupted is the cause of a lifetime that a person ended at a terminal,
// who wants it all to be over; a SIGTERM may be an upgrade.
var errInterrupted = errors.New("interrupted")

// interrupted tells, once ctx has ended, whether that was it.
func interrupted(ctx context.Context) func() bool {
	return func() bool { return errors.Is(context.Cause(ctx), errInterrupted) }
}

// untilSignal gives a context under which serve may be called. stop undoes it.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lifetime{end: cancel, ch: make(chan os.Signal, 2)}
	return context.WithValue(ctx, lifetimeKey{}, l), func() {
		signal.Stop(l.ch)
		cancel(nil)
	}
}

// serve makes this process a service: signals end ctx from now on. Without untilSignal, as
// in tests, it does nothing.
func serve(ctx context.Context) {
	l, ok := ctx.Value(lifetimeKey{}).(*lifetime)
	if !ok || l.asked.Swap(true) {
		return
	}
	signal.Notify(l.ch, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		if <-l.ch == syscall.SIGINT {
			l.end(errInterrupted)
		}
		l.end(nil)
		if s, ok := (<-l.ch).(syscall.Signal); ok {
			os.Exit(128 + int(s))
		}
	}()
}
