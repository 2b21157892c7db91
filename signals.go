package main

import (
	"context"
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
	end   context.CancelFunc
	ch    chan os.Signal
}

type lifetimeKey struct{}

// untilSignal gives a context under which serve may be called. stop undoes it.
func untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	l := &lifetime{end: cancel, ch: make(chan os.Signal, 2)}
	return context.WithValue(ctx, lifetimeKey{}, l), func() {
		signal.Stop(l.ch)
		cancel()
	}
}

// serve makes signals end ctx from now on. Without untilSignal, as in tests, it
// does nothing.
func serve(ctx context.Context) {
	l, ok := ctx.Value(lifetimeKey{}).(*lifetime)
	if !ok || l.asked.Swap(true) {
		return
	}
	signal.Notify(l.ch, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-l.ch
		l.end()
		if s, ok := (<-l.ch).(syscall.Signal); ok {
			os.Exit(128 + int(s))
		}
	}()
}
