package natsd

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server/pse"
)

// A program without a server does not measure its resource use each second.
func TestStopUsageSampling(t *testing.T) {
	StopUsageSampling()
	var cpu float64
	var rss, vss int64
	if err := pse.ProcUsage(&cpu, &rss, &vss); err == nil {
		t.Errorf("usage is still measured: %d bytes", rss)
	}
}
