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

// Environment variables: the kernel, where it is not installed; a switch to run all tests as
// often as for other drivers, which takes many minutes where QEMU translates; and the
// cache, passed on to the processes that the test starts.
const (
	kernelVariable = "MILLRACE_TEST_KERNEL"
	wholeVariable  = "MILLRACE_TEST_MICROVM"
	cacheVariable  = "MILLRACE_TEST_CACHE"
)

func newDriver(t testing.TB) driver.Driver {
	t.Helper()
	if err := static("/proc/self/exe"); err != nil {
		t.Skip("this test must be built with CGO_ENABLED=0: ", err)
	}
	cache := os.Getenv(cacheVariable)
	if cache == "" {
		cache = filepath.Join(os.TempDir(), "millrace-microvm-test")
		t.Setenv(cacheVariable, cache)
	}
	return New(Config{TCG: true, Console: true, Kernel: os.Getenv(kernelVariable), Cache: cache})
}

func ofTest(t *testing.T) driver.Driver { return newDriver(t) }

func TestContract(t *testing.T) {
	if os.Getenv(wholeVariable) != "" {
		drivertest.Run(t, ofTest)
		return
	}
	drivertest.Scale{Creates: 20, Moments: 4}.Run(t, ofTest)
}

func TestAttacks(t *testing.T)   { drivertest.RunAttacks(t, ofTest) }
func TestIsolation(t *testing.T) { drivertest.RunIsolation(t, ofTest) }
func TestTemplate(t *testing.T)  { drivertest.RunTemplate(t, ofTest) }

func BenchmarkSandbox(b *testing.B) { drivertest.BenchBurst(b, newDriver(b), 8) }
