package hostd

import (
	"log/slog"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/gvisor"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
	"github.com/millrace/millrace/services/hostd/internal/sidecar"
)

func newNamespace(log *slog.Logger) (driver.Driver, error) {
	return namespace.New(namespace.Config{Log: log}), nil
}

func newGvisor(log *slog.Logger) (driver.Driver, error) {
	return gvisor.New(gvisor.Config{Log: log, Runsc: sidecar.Runsc().Find}), nil
}
