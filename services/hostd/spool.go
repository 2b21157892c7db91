package hostd

import (
	"os"

	"github.com/millrace/millrace/services/hostd/internal/spool"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// defaultSpool is the maximum of a sandbox's output on disk that cannot be stored yet.
const defaultSpool = 1 << 30

// limits returns the limits of each shim.
func (cfg *Config) limits() wire.Limits {
	return wire.Limits{
		Quota: cfg.Quota, QuotaTotal: cfg.SandboxQuota, Rate: cfg.Rate, RateTotal: cfg.SandboxRate,
		Grace: cfg.Grace, Disk: uint64(max(cfg.Spool, 0)),
	}
}

// openSpool opens the file in which the sandbox's shim keeps output that is not stored yet. nil:
// shims keep all in memory.
func (sb *hostSandbox) openSpool() (*os.File, error) {
	if sb.h.cfg.Spool < 0 {
		return nil, nil
	}
	return spool.Open(sb.h.instances.Dir(sb.current.Name()))
}
