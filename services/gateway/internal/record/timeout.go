package record

import (
	"time"

	"github.com/millrace/millrace/events/kind"
)

// maxTimeoutMS is ten years: a larger value is a mistake.
const maxTimeoutMS = 10 * 365 * 24 * 3600 * 1000

// Timeout parses timeout_ms, a process's timeout: nil means def, 0 no timeout. Its errors
// are Invalid.
func Timeout(ms *int64, def time.Duration) (time.Duration, error) {
	switch {
	case ms == nil:
		return def, nil
	case *ms < 0 || *ms > maxTimeoutMS:
		return 0, kind.New(kind.Invalid, "decode", "", "timeout_ms: must be 0 (no timeout) to 315360000000 ms")
	}
	return time.Duration(*ms) * time.Millisecond, nil
}
