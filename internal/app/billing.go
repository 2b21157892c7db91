package app

import (
	"fmt"
	"math"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/events/usage"
	"github.com/millrace/millrace/services/gateway"
)

// billing holds the settings of prices.
type billing struct {
	cpuHour float64 // cents
}

// defaultCPUHour is the default of --price-cpu-hour, in cents.
const defaultCPUHour = 5

func (b *billing) flags(f *pflag.FlagSet) {
	f.Float64Var(&b.cpuHour, "price-cpu-hour", defaultCPUHour, "price of an hour of CPU time in cents, as credits of e2a; 0: free")
}

func (b *billing) config() (c gateway.BillingConfig, err error) {
	const parts = 1000 // of a cent
	if math.IsNaN(b.cpuHour) || b.cpuHour < 0 || b.cpuHour > usage.MaxCPUHour/parts {
		return c, fmt.Errorf("--price-cpu-hour: %v must be from 0 to %d", b.cpuHour, usage.MaxCPUHour/parts)
	}
	c.Price.CPUHour = int64(math.Round(b.cpuHour * parts))
	return c, nil
}
