package record

import (
	"time"

	"github.com/millrace/millrace/events/kind"
)

// maxTimeoutMS is ten years: what is longer is a mistake.
const maxTimeoutMS = 10 * 365 * 24 * 3600 * 1000

// Timeout reads timeout_ms, how long a process may run: nil means def, 0 no end.
// Invalid for what no time can be.
func Timeout(ms *int64, def time.Duration) (time.Duration, error) {
	switch {
	case ms == nil:
		return def, nil
	case *ms < 0 || *ms > maxTimeoutMS:
		return 0, kind.New(kind.Invalid, "decode", "", "timeout_ms: 0 for none, or milliseconds")
	}
	return time.Duration(*ms) * time.Millisecond, nil
}
