//go:build freebsd || darwin

package direct

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// mountVolumes returns an error for volumes: this system has no mount namespaces.
func mountVolumes(volumes []driver.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	return kind.New(kind.Unimplemented, "show volumes", "", "driver direct supports volumes only on Linux")
}

func canMountVolumes() bool { return false }
