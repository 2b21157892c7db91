//go:build !linux

package veth

import (
	"context"
	"log/slog"
	"net/netip"
	"os"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// Config configures a Net, which is supported only on Linux.
type Config struct {
	Key   string
	Range netip.Prefix
	Steps []Step
	Log   *slog.Logger
}

// Net is supported only on Linux.
type Net struct{}

// Open returns Unimplemented.
func Open(context.Context, Config) (*Net, error) {
	return nil, kind.New(kind.Unimplemented, "open veth", "", "interfaces for sandboxes require Linux")
}

// Remove does nothing.
func Remove(string) error { return nil }

// Keep does nothing.
func (*Net) Keep(context.Context) {}

// Close does nothing.
func (*Net) Close(context.Context) error { return nil }

// Attach does nothing.
func (*Net) Attach(sandbox.ID, *os.File) error { return nil }

// Used returns nothing.
func (*Net) Used() (map[sandbox.ID]sandbox.LinkUsed, error) { return nil, nil }

// Detach does nothing.
func (*Net) Detach(sandbox.ID) (sandbox.LinkUsed, error) { return sandbox.LinkUsed{}, nil }

// Sweep does nothing.
func (*Net) Sweep(func(sandbox.ID) bool) error { return nil }
