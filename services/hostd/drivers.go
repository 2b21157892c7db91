package hostd

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
	"github.com/millrace/millrace/services/hostd/internal/driver/jail"
)

// Auto stands in Config.Drivers for the drivers that suit this machine.
const Auto = "auto"

// autoOrder are the drivers that Auto stands for, as far as they work here: the first of them is
// the default. lateName is the one that startup does not wait for, because it may have to be
// built first.
var autoOrder = [...]string{lateName, "namespace", "jail"}

const lateName = "gvisor"

// driverNames are the names of all drivers. Not all work on every system; their Probe returns
// why.
var driverNames = [...]string{"gvisor", "namespace", "microvm", "firecracker", "jail", "direct"}

// driverSet has the drivers of a run: one per name, since a driver keeps the host's resources of
// all its sandboxes, created or adopted.
type driverSet struct {
	mu  sync.Mutex
	all map[string]driver.Driver
}

// makeDriver returns the driver with a name: the run's, if cfg belongs to a run.
func makeDriver(name string, cfg *Config) (driver.Driver, error) {
	if cfg.opened == nil {
		return newDriver(name, cfg)
	}
	cfg.opened.mu.Lock()
	defer cfg.opened.mu.Unlock()
	d, err := cfg.opened.all[name], error(nil)
	if d == nil {
		if d, err = newDriver(name, cfg); err == nil {
			cfg.opened.all[name] = d
		}
	}
	return d, err
}

// close stops the background work of drivers that are no longer used.
func (m *driverSet) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []error
	for _, d := range m.all {
		if c, ok := d.(io.Closer); ok {
			all = append(all, c.Close())
		}
	}
	return errors.Join(all...)
}

func newDriver(name string, cfg *Config) (driver.Driver, error) {
	switch name {
	case "gvisor":
		return newGvisor(cfg)
	case "namespace":
		return newNamespace(cfg)
	case "microvm":
		return newMicroVM(cfg)
	case "firecracker":
		return newFirecracker(cfg)
	case "jail":
		return jail.New(jail.Config{Pool: cfg.JailPool, Tools: cfg.JailTools, Log: cfg.Slog}), nil
	case "direct":
		return direct.New(direct.Config{Log: cfg.Slog}), nil
	}
	return nil, checkDriver(name)
}

func checkDriver(name string) error {
	if slices.Contains(driverNames[:], name) {
		return nil
	}
	return kind.Newf(kind.Invalid, "hostd", "", "driver %q does not exist; the drivers are: %s", name, strings.Join(driverNames[:], ", "))
}

// CheckDrivers returns an error if a driver does not exist.
func CheckDrivers(names []string) error {
	for _, n := range names {
		if n == Auto {
			continue
		}
		if err := checkDriver(n); err != nil {
			return err
		}
	}
	return nil
}
