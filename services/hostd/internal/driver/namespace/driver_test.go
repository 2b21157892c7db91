//go:build linux

package namespace

import (
	"os"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func newDriver(t *testing.T) driver.Driver {
	t.Helper()
	return New(Config{Templates: templates(t)})
}

// templatesVariable hands the directory on to the processes that a test starts.
const templatesVariable = "NAMESPACE_TEST_TEMPLATES"

// templates is one directory for all of a test, as a host has one.
func templates(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(templatesVariable); dir != "" {
		return dir
	}
	dir, err := os.MkdirTemp("", "millrace-templates-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(templatesVariable, dir)
	return dir
}

func TestContract(t *testing.T) { drivertest.Run(t, newDriver) }

func TestAttacks(t *testing.T) { drivertest.RunAttacks(t, newDriver) }

func BenchmarkSandbox(b *testing.B) { drivertest.Bench(b, New(Config{Templates: templates(b)})) }

func TestIsolation(t *testing.T) { drivertest.RunIsolation(t, newDriver) }

func TestTemplate(t *testing.T) { drivertest.RunTemplate(t, newDriver) }

func TestRootless(t *testing.T) {
	drivertest.RunRootless(t, "^Test(Contract|Attacks|Isolation|Template)$")
}
