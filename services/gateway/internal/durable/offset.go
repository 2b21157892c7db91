package durable

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/record"
)

// appendOffset appends the offset after event seq: 20 digits, so that offsets sort as
// strings.
func appendOffset(dst []byte, seq process.Seq) []byte { return fmt.Appendf(dst, "%020d", seq) }

func offset(seq process.Seq) string { return string(appendOffset(nil, seq)) }

// parseOffset parses one of our offsets, "-1" or "now"; empty is "-1".
func parseOffset(s string) (record.Position, error) {
	if s == "-1" {
		return record.Position{}, nil
	}
	return record.ParsePosition(s)
}

const (
	cursorEpoch    = 1728432000 // 2024-10-09T00:00:00Z, as the protocol proposes
	cursorInterval = 20         // seconds
	cursorJitter   = 3600       // seconds
)

// nextCursor returns the cursor of a live response: the number of the current interval,
// or a number beyond the client's, so that no cache serves a client the same response
// forever.
func nextCursor(client string, now time.Time) string {
	n := uint64(max(now.Unix()-cursorEpoch, 0)) / cursorInterval
	if c, err := strconv.ParseUint(client, 10, 62); err == nil && c >= n {
		n = c + 1 + rand.Uint64N(cursorJitter/cursorInterval)
	}
	return strconv.FormatUint(n, 10)
}
