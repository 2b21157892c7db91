package sandboxes

import (
	"time"

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
