package e2b

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// lifetime checks a timeout in seconds; nil means def.
func (h *Handler) lifetime(seconds *int64, def time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return def, nil
	case *seconds < 0:
		return 0, wire.Invalid("timeout cannot be negative")
	case *seconds > int64(h.cfg.MaxTimeout/time.Second):
		return 0, wire.Invalid("timeout cannot be greater than %d seconds", h.cfg.MaxTimeout/time.Second)
	}
	// In a record 0 means no timeout; a timeout of 0 ends the sandbox at once.
	return max(time.Duration(*seconds)*time.Second, time.Nanosecond), nil
}

// Maximum sizes of a sandbox's metadata and environment, in bytes of keys and values.
const (
	maxMetadata = 64 << 10
	maxEnv      = 256 << 10
)

func checkMetadata(m map[string]string) error {
	if size(m) > maxMetadata {
		return wire.Invalid("metadata is larger than %d bytes", maxMetadata)
	}
	return nil
}

func checkEnv(m map[string]string) error {
	if size(m) > maxEnv {
		return wire.Invalid("envVars is larger than %d bytes", maxEnv)
	}
	return process.CheckEnv("decode", m)
}

func size(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
