//go:build freebsd || darwin

package direct

import (
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/hostd/internal/driver"
)

// show shows nothing: there are no views of the files here.
func show(volumes []driver.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	return kind.New(kind.Unimplemented, "show volumes", "", "the driver direct shows volumes on Linux only")
}

func canShow() bool { return false }
