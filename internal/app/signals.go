package app

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// lifetime cancels a context at the first SIGTERM or SIGINT; at the second the program
// exits at once. Only services activate it, by serve; client commands handle signals
// themselves.
type lifetime struct {
	asked atomic.Bool
	end   context.CancelCauseFunc
	ch    chan os.Signal
}

type lifetimeKey struct{}

// errInterrupted is the cause of a context that SIGINT ended: a user at a terminal wants
// everything to end, whereas a SIGTERM may be an upgrade.
var errInterrupted = errors.New("interrupted")

// interrupted returns a function that reports whether SIGINT ended ctx.
func interrupted(ctx context.Context) func() bool {
	return func() bool { return errors.Is(context.Cause(ctx), errInterrupted) }
}

// untilSignal returns a context for serve, and a function that releases it.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lifetime{end: cancel, ch: make(chan os.Signal, 2)}
	return context.WithValue(ctx, lifetimeKey{}, l), func() {
		signal.Stop(l.ch)
		cancel(nil)
	}
}

// serve makes this process a service: from now on signals end ctx. It does nothing if ctx
// is not from untilSignal, as in tests.
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
