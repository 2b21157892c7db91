//go:build linux

package microvm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == firecrackerName {
		os.Exit(playFirecracker(filepath.Dir(os.Args[0])))
	}
	drivertest.Main(m)
}

// Where a test looks for a kernel that is not installed, and what makes it run the
// whole contract, which takes a quarter of an hour where QEMU translates.
const (
	kernelVariable = "MILLRACE_TEST_KERNEL"
	wholeVariable  = "MILLRACE_TEST_MICROVM"
)

func newDriver(t *testing.T) driver.Driver {
	t.Helper()
	if err := static("/proc/self/exe"); err != nil {
		t.Skip("this test must be built with CGO_ENABLED=0: ", err)
	}
	return New(Config{TCG: true, Console: true, Kernel: os.Getenv(kernelVariable), Cache: filepath.Join(os.TempDir(), "millrace-microvm-test")})
}

func TestContract(t *testing.T) {
	if os.Getenv(wholeVariable) != "" {
		drivertest.Run(t, newDriver)
		return
	}
	drivertest.RunSlow(t, newDriver)
}
