package hostd

import (
	"log/slog"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
)

func newNamespace(log *slog.Logger) (driver.Driver, error) {
	return namespace.New(namespace.Config{Log: log}), nil
}
