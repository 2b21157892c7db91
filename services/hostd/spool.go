package hostd

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

// defaultSpool is how much of the disk a sandbox may fill with output that
// cannot be stored yet.
const defaultSpool = 1 << 30

// limits are what each shim keeps.
func (cfg *Config) limits() wire.Limits {
	return wire.Limits{
		Quota: cfg.Quota, QuotaTotal: cfg.SandboxQuota, Rate: cfg.Rate, RateTotal: cfg.SandboxRate,
		Grace: cfg.Grace, Disk: uint64(max(cfg.Spool, 0)),
	}
}

// openSpool opens a file without a name in dir, on which a shim keeps what is not
// stored yet: nothing of it is left when the shim is gone, and nobody but who
// holds it can reach it. nil: shims are to keep all in memory.
func (b *box) openSpool() (*os.File, error) {
	if b.h.cfg.Spool < 0 {
		return nil, nil
	}
	dir := b.h.dirOf(b.placeName())
	if f, err := nameless(dir); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, "spool-") // not every file system has files without names
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// hungUp reports whether a shim ended the talk at once, as those of version 1 do
// on any other.
func hungUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// older is the version to try after one that a shim hung up on.
func older(version uint32) uint32 {
	if version > 1 {
		return version - 1
	}
	return wire.Version
}
