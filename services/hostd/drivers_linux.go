package hostd

import (
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/gvisor"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

func newNamespace(cfg *Config) (driver.Driver, error) {
	return namespace.New(namespace.Config{Scratch: cfg.scratch(), Log: cfg.Slog}), nil
}

func newGvisor(cfg *Config) (driver.Driver, error) {
	return gvisor.New(gvisor.Config{Scratch: cfg.scratch(), Log: cfg.Slog, Runsc: helperbin.Runsc().Find}), nil
}

func newMicroVM(cfg *Config) (driver.Driver, error) {
	return microvm.New(microvm.Config{Init: func() string { return machineInit(cfg) }, Kernel: cfg.GuestKernel, TCG: cfg.TCG, Scratch: cfg.scratch(), Log: cfg.Slog}), nil
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

func newFirecracker(cfg *Config) (driver.Driver, error) {
	return microvm.NewFirecracker(microvm.FirecrackerConfig{Kernel: cfg.GuestKernel, Log: cfg.Slog}), nil
}
