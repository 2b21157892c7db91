package processes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/cli/output"
)

// parseSignal parses KILL, SIGKILL, kill or 9. Numbers are those of Linux.
func parseSignal(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 64 {
			return 0, fmt.Errorf("signal %d does not exist", n)
		}
		return n, nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return int(n), nil
	}
	return 0, fmt.Errorf("signal %q does not exist", s)
}

// untilInterrupted returns a context that the first interrupt cancels, with the program's
// exit as its cause. After begun was called, signals are handled by the attachment. A
// second interrupt ends the program by default.
func untilInterrupted(ctx context.Context) (_ context.Context, begun, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	other := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			signal.Stop(ch)
			if sig, ok := s.(unix.Signal); ok {
				cancel(&output.ExitError{Code: output.ExitSignal + int(sig)})
			}
		case <-other:
		case <-ctx.Done():
		}
	}()
	return ctx, func() { close(other) }, func() {
		signal.Stop(ch)
		cancel(nil)
	}
}

// interruption returns the exit caused by an interrupt; nil without one.
func interruption(ctx context.Context) error {
	var exit *output.ExitError
	if errors.As(context.Cause(ctx), &exit) {
		return exit
	}
	return nil
}
