package sandboxes

import (
	"time"

	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/e2b/internal/wire"
)

// maxTimeout is the maximum timeout of a sandbox.
type maxTimeout time.Duration

// parse checks a timeout in seconds; nil means def.
func (most maxTimeout) parse(seconds *int64, def time.Duration) (time.Duration, error) {
	switch {
	case seconds == nil:
		return def, nil
	case *seconds < 0:
		return 0, wire.Invalid("timeout cannot be negative")
	case *seconds > int64(time.Duration(most)/time.Second):
		return 0, wire.Invalid("timeout cannot be greater than %d seconds", time.Duration(most)/time.Second)
	}
	// In a record 0 means no timeout; a timeout of 0 ends the sandbox at once.
	return max(time.Duration(*seconds)*time.Second, time.Nanosecond), nil
}

// maxHardEnd is the maximum time until a hard end, in seconds.
const maxHardEnd = 10 * 365 * 24 * 3600

// hardEndBody is the hard end in a create request, which is not part of E2B's API.
type hardEndBody struct {
	HardEnd        *int64 `json:"hardEnd"`        // seconds from the request
	HardEndWarning *int64 `json:"hardEndWarning"` // seconds before the hard end
}

func (b *hardEndBody) check() error {
	switch {
	case b.HardEnd == nil && b.HardEndWarning == nil:
		return nil
	case b.HardEnd == nil:
		return wire.Invalid("hardEndWarning requires hardEnd")
	case *b.HardEnd < 1 || *b.HardEnd > maxHardEnd:
		return wire.Invalid("hardEnd must be between 1 and %d seconds", maxHardEnd)
	case b.HardEndWarning != nil && (*b.HardEndWarning < 1 || *b.HardEndWarning > *b.HardEnd):
		return wire.Invalid("hardEndWarning must be between 1 second and hardEnd")
	}
	return nil
}

// apply sets the hard end, which counts from now, so that neither the start nor a pause delays it.
func (b *hardEndBody) apply(req *sandbox.Requested, now time.Time) {
	if b.HardEnd == nil {
		return
	}
	req.HardEnd = now.Add(time.Duration(*b.HardEnd) * time.Second)
	if b.HardEndWarning != nil {
		req.Warning = time.Duration(*b.HardEndWarning) * time.Second
	}
}
