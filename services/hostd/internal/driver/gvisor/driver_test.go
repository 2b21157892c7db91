//go:build linux

package gvisor

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
	"github.com/millrace/millrace/services/hostd/internal/driver/namespace"
	"github.com/millrace/millrace/services/hostd/internal/helperbin"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func newDriver(t *testing.T) driver.Driver {
	t.Helper()
	return New(testConfig(t))
}

// runscVariable passes the program on to the processes that a test starts.
const runscVariable = "GVISOR_TEST_RUNSC"

func testConfig(t testing.TB) Config {
	t.Helper()
	dir := drivertest.Templates(t)
	path := os.Getenv(runscVariable)
	if path == "" {
		built, err := helperbin.Runsc().Build(t.Context(), slog.Info)
		if err != nil {
			t.Skipf("millrace-runsc cannot be built here: %v", err)
		}
		path = filepath.Join(dir, "runsc") // where all users have access
		if err := link(built, path); err != nil {
			t.Fatal(err)
		}
		t.Setenv(runscVariable, path)
	}
	return Config{Templates: dir, Runsc: func() (string, error) { return path, nil }}
}

func TestContract(t *testing.T) { drivertest.Run(t, newDriver) }

func TestAttacks(t *testing.T) { drivertest.RunAttacks(t, newDriver) }

func TestIsolation(t *testing.T) { drivertest.RunIsolation(t, newDriver) }

func TestTemplate(t *testing.T) { drivertest.RunTemplate(t, newDriver) }

// Each of the two drivers can use the other's snapshots of files.
func TestAcross(t *testing.T) {
	drivertest.RunAcross(t, drivertest.Maker{Name: "gvisor", New: newDriver}, drivertest.Maker{Name: "namespace", New: func(t *testing.T) driver.Driver {
		return namespace.New(namespace.Config{Templates: drivertest.Templates(t)})
	}})
}

func TestRootless(t *testing.T) {
	testConfig(t)
	t.Setenv(drivertest.TemplatesVariable, "") // the other user cannot write to the test's
	drivertest.RunRootless(t, "^Test(Contract|Across|AnotherBuild|SnapshotsKeepUnreadOutput)$/^(gvisor_|namespace_|a_|an_|the_|destroy|done|attach_|list|limits|pause|it_|many|stats_|forks|volumes|two_|hostd_killed)")
}

// The isolation holds also where an ordinary user runs hostd.
func TestRootlessIsolation(t *testing.T) {
	testConfig(t)
	t.Setenv(drivertest.TemplatesVariable, "") // the other user cannot write to the test's
	drivertest.RunRootless(t, "^Test(Attacks|Isolation)$/^(break_|change_|kill_|reach_|sudo_|system_|files_|processes_|terminals_|the_|there_|no_privileges)")
}

func BenchmarkSandbox(b *testing.B) { drivertest.Bench(b, New(testConfig(b))) }
