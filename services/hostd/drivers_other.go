//go:build !linux

package hostd

import (
	"log/slog"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

func newNamespace(*slog.Logger) (driver.Driver, error) {
	return nil, kind.New(kind.Unavailable, "hostd", "", "namespaces are Linux's own")
}

func newGvisor(*slog.Logger) (driver.Driver, error) {
	return nil, kind.New(kind.Unavailable, "hostd", "", "gVisor runs on Linux only")
}
