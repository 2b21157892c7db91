package drivers

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/direct"
	"github.com/millrace/millrace/services/hostd/internal/driver/jail"
)

// Auto stands in Config.Names for the drivers that suit this machine.
const Auto = "auto"

// autoOrder are the drivers that Auto stands for, as far as they work here: the first of them is
// the default. Late is the one that startup does not wait for, because it may have to be
// built first.
var autoOrder = [...]string{Late, "namespace", "jail"}

// Late is the driver that a host offers only after its start, once its dependencies are built and
// it was probed.
const Late = "gvisor"

var names = [...]string{"gvisor", "namespace", "microvm", "firecracker", "jail", "direct"}

// Names returns the names of all drivers. Not all work on every system; their Probe returns why.
func Names() []string { return slices.Clone(names[:]) }

// build returns a new driver.
func build(name string, cfg *Config) (driver.Driver, error) {
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
		return jail.New(jail.Config{Pool: cfg.JailPool, Tools: cfg.JailTools, Log: cfg.Log}), nil
	case "direct":
		return direct.New(direct.Config{Log: cfg.Log}), nil
	}
	return nil, check(name)
}

func check(name string) error {
	if slices.Contains(names[:], name) {
		return nil
	}
	return kind.Newf(kind.Invalid, "hostd", "", "driver %q does not exist; the drivers are: %s", name, strings.Join(names[:], ", "))
}

// Check returns an error if a driver does not exist.
func Check(asked []string) error {
	for _, n := range asked {
		if n == Auto {
			continue
		}
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}
