package drivers

import (
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/gvisor"
	"github.com/millrace/millrace/services/hostd/internal/driver/microvm"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

func newNamespace(cfg *Config) (driver.Driver, error) {
	return namespace.New(namespace.Config{Scratch: cfg.Scratch, Log: cfg.Log}), nil
}

func newGvisor(cfg *Config) (driver.Driver, error) {
	return gvisor.New(gvisor.Config{Scratch: cfg.Scratch, Log: cfg.Log, Runsc: helperbin.Runsc().Find}), nil
}

func newMicroVM(cfg *Config) (driver.Driver, error) {
	return microvm.New(microvm.Config{Init: cfg.MachineInit, Kernel: cfg.Kernel, TCG: cfg.TCG, Scratch: cfg.Scratch, Log: cfg.Log}), nil
}

func newFirecracker(cfg *Config) (driver.Driver, error) {
	return microvm.NewFirecracker(microvm.FirecrackerConfig{Kernel: cfg.Kernel, Log: cfg.Log}), nil
}
