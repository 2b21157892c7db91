//go:build linux

package namespace

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func newDriver(t *testing.T) driver.Driver {
	t.Helper()
	return New(Config{Templates: drivertest.Templates(t)})
}

func TestContract(t *testing.T) { drivertest.Run(t, newDriver) }

func TestAttacks(t *testing.T) { drivertest.RunAttacks(t, newDriver) }

func BenchmarkSandbox(b *testing.B) {
	drivertest.Bench(b, New(Config{Templates: drivertest.Templates(b)}))
}

func TestIsolation(t *testing.T) { drivertest.RunIsolation(t, newDriver) }

func TestTemplate(t *testing.T) { drivertest.RunTemplate(t, newDriver) }

// Without a cgroup, too, a sandbox can be paused and snapshotted.
func TestRootlessWithoutCgroups(t *testing.T) { drivertest.RunBare(t, "^TestContract$") }

func TestRootless(t *testing.T) {
	drivertest.RunRootless(t, "^Test(Contract|Attacks|Isolation|Template)$")
}
