package hostd

import (
	"log/slog"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/gvisor"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
	"github.com/millrace/millrace/services/hostd/internal/sidecar"
)

func newNamespace(log *slog.Logger) (driver.Driver, error) {
	return namespace.New(namespace.Config{Log: log}), nil
}

func newGvisor(log *slog.Logger) (driver.Driver, error) {
	return gvisor.New(gvisor.Config{Log: log, Runsc: sidecar.Runsc().Find}), nil
}

func newMicroVM(cfg *Config) (driver.Driver, error) {
	return microvm.New(microvm.Config{Kernel: cfg.GuestKernel, TCG: cfg.TCG, Log: cfg.Slog}), nil
}

func newFirecracker(cfg *Config) (driver.Driver, error) {
	return microvm.NewFirecracker(microvm.FirecrackerConfig{Kernel: cfg.GuestKernel, Log: cfg.Slog}), nil
}
