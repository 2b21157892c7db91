package hostd

import (
	"context"
	"errors"
	"os"

	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

// ShimSelf as Config.Shim selects this program itself.
const ShimSelf = "self"

// findShim prefers the small program: it starts sooner, and an idle sandbox has 0.8 MiB of its
// own instead of 2 (3.4 instead of 14.7 resident). A release has it beside this program. If this
// program was built from source that is available here, it is built from that in the background;
// until then this program is also the shim.
func (is *instanceStore) findShim() error {
	switch {
	case len(is.h.cfg.Shim) == 1 && is.h.cfg.Shim[0] == ShimSelf:
	case len(is.h.cfg.Shim) > 0:
		is.shim.Store(&is.h.cfg.Shim)
		return nil
	default:
		if path, err := helperbin.Shim().FindSame(); err == nil {
			is.shim.Store(&[]string{path})
			return nil
		}
	}
	exe, err := os.Executable()
	is.shim.Store(&[]string{exe, shimRole})
	return err
}

// buildShim builds the small shim if findShim found none.
func (is *instanceStore) buildShim(ctx context.Context) error {
	if len(is.h.cfg.Shim) > 0 || len(*is.shim.Load()) == 1 {
		return nil
	}
	path, err := helperbin.Shim().BuildSame(ctx, is.h.slog.Info)
	if err == nil {
		is.shim.Store(&[]string{path})
	} else if ctx.Err() == nil && !errors.Is(err, helperbin.ErrNoSource) {
		is.h.slog.Info("build small shim failed, using this program as the shim", "err", err)
	}
	return nil //nolint:nilerr // this program works as well
}

// machineInit returns the program with which microvm probes KVM: the shim, which is static where
// this program may not be. Empty: this program.
func machineInit(cfg *Config) string {
	switch {
	case len(cfg.Shim) == 1 && cfg.Shim[0] != ShimSelf:
		return cfg.Shim[0]
	case len(cfg.Shim) > 0:
		return ""
	}
	path, err := helperbin.Shim().FindSame()
	if err != nil {
		return ""
	}
	return path
}
