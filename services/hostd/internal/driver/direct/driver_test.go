//go:build linux

package direct

import (
	"testing"

	"github.com/millrace/millrace/services/hostd/internal/driver"
	"github.com/millrace/millrace/services/hostd/internal/driver/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func TestContract(t *testing.T) {
	drivertest.Run(t, func(*testing.T) driver.Driver { return New(Config{}) })
}

func BenchmarkSandbox(b *testing.B) { drivertest.Bench(b, New(Config{})) }

func TestRootless(t *testing.T) { drivertest.RunRootless(t, "^TestContract$") }
