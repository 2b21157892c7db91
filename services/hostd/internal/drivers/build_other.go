//go:build !linux

package drivers

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

func newNamespace(*Config) (driver.Driver, error) {
	return nil, kind.New(kind.Unavailable, "hostd", "", "this driver runs on Linux only")
}

func newGvisor(*Config) (driver.Driver, error) {
	return nil, kind.New(kind.Unavailable, "hostd", "", "gVisor runs on Linux only")
}

func newMicroVM(*Config) (driver.Driver, error) {
	return nil, kind.New(kind.Unavailable, "hostd", "", "this driver runs on Linux only")
}

func newFirecracker(cfg *Config) (driver.Driver, error) { return newMicroVM(cfg) }
