package textenc

import (
	"strconv"
	"strings"
	"time"
)

// WantsSSE reports whether an Accept header prefers text/event-stream to NDJSON. NDJSON is
// the default, for curl and clients without a preference.
func WantsSSE(accept string) bool {
	var sse, lines float64
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		q := quality(params)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case ContentTypeSSE, "text/*":
			sse = max(sse, q)
		case ContentTypeNDJSON, "application/ndjson", "application/jsonl", "application/json", "application/*", "*/*":
			lines = max(lines, q)
		}
	}
	return sse > 0 && sse >= lines
}

func quality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
			q, err := strconv.ParseFloat(v, 64)
			if err != nil || q != q || q < 0 || q > 1 {
				return 0
			}
			return q
		}
	}
	return 1
}

// KeepaliveHeader is the header with which a client requests keepalives, in whole
// seconds.
const KeepaliveHeader = "Keepalive-Ping-Interval"

// maxKeepalive is the maximum interval that a client may request.
const maxKeepalive = time.Hour

// Keepalive parses the header's value: 1 s to 1 h. It returns otherwise if value is not a
// positive whole number of seconds.
func Keepalive(value string, otherwise time.Duration) time.Duration {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
	if err != nil || n == 0 {
		return otherwise
	}
	return min(time.Duration(n)*time.Second, maxKeepalive)
}
