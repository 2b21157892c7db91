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

// openSpool opens the spool file of a sandbox in its directory. nil: shims keep all in memory.
func (h *host) openSpool(dir string) (*os.File, error) {
	if h.cfg.Spool < 0 {
		return nil, nil
	}
	return spool.Open(dir)
}
