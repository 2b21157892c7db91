package natsd

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server/pse"
)

// A program without a server counts nothing each second for one.
func TestHush(t *testing.T) {
	Hush()
	var cpu float64
	var rss, vss int64
	if err := pse.ProcUsage(&cpu, &rss, &vss); err == nil {
		t.Errorf("it still can: %d bytes", rss)
	}
}
