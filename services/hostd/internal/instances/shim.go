package instances

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// ShimSelf as the configured shim selects this program itself.
const ShimSelf = "self"

// Shim is the program that runs as the shim of each sandbox.
type Shim struct {
	configured []string // program and arguments, or ShimSelf; empty: Find decides
	role       string   // argument that makes this program a shim
	log        *slog.Logger
	program    atomic.Pointer[[]string] // program and arguments of the next sandbox's shim
}

// NewShim returns a shim whose program is not known. role is the argument that makes this program a
// shim.
func NewShim(configured []string, role string, log *slog.Logger) *Shim {
	return &Shim{configured: configured, role: role, log: log}
}

// Program returns the program and the arguments of the next sandbox's shim.
func (s *Shim) Program() []string { return *s.program.Load() }

// Find selects the program. It prefers the small one: it starts sooner, and an idle sandbox has
// 0.8 MiB of its own instead of 2 (3.4 instead of 14.7 resident). A release has it beside this
// program. If this program was built from source that is available here, Build builds it from that
// in the background; until then this program is also the shim.
func (s *Shim) Find() error {
	switch {
	case len(s.configured) == 1 && s.configured[0] == ShimSelf:
	case len(s.configured) > 0:
		s.program.Store(&s.configured)
		return nil
	default:
		if path, err := helperbin.Shim().FindSame(); err == nil {
			s.program.Store(&[]string{path})
			return nil
		}
	}
	exe, err := os.Executable()
	s.program.Store(&[]string{exe, s.role})
	return err
}

// Build builds the small shim if Find found none.
func (s *Shim) Build(ctx context.Context) error {
	if len(s.configured) > 0 || len(s.Program()) == 1 {
		return nil
	}
	path, err := helperbin.Shim().BuildSame(ctx, s.log.Info)
	if err == nil {
		s.program.Store(&[]string{path})
	} else if ctx.Err() == nil && !errors.Is(err, helperbin.ErrNoSource) {
		s.log.Info("build small shim failed, using this program as the shim", "err", err)
	}
	return nil
}

// MachineInit returns the program with which microvm probes KVM: the shim, which is static where
// this program may not be. Empty: this program.
func (s *Shim) MachineInit() string {
	switch {
	case len(s.configured) == 1 && s.configured[0] != ShimSelf:
		return s.configured[0]
	case len(s.configured) > 0:
		return ""
	}
	path, err := helperbin.Shim().FindSame()
	if err != nil {
		return ""
	}
	return path
}
