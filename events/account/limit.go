package account

import (
	"encoding/hex"
	"net/netip"
	"time"
)

// sourceBits is the length of the prefix of IPv6 addresses that counts as one source: a client can choose the
// rest.
const sourceBits = 64

// Source is the network address of clients, and the times of their requests that were admitted.
type Source struct {
	ID       string
	Requests []time.Time
	Rev      uint64    // stream sequence, which the next change must expect
	Changed  time.Time // when it was stored
}

// SourceOf returns the id of the source that an address belongs to: a token of a subject.
func SourceOf(a netip.Addr) string {
	switch a = a.Unmap(); {
	case !a.IsValid(): // not an IP connection
		return "none"
	case a.Is4():
		return hex.EncodeToString(a.AsSlice())
	}
	return hex.EncodeToString(a.AsSlice()[:sourceBits/8])
}

// Admit decides about a request at now if at most limit are admitted in any period of length
// per. times are those of the admitted requests, oldest first. It returns the times that still
// count, with now if the request is admitted, and otherwise the time until the next one is.
func Admit(times []time.Time, now time.Time, limit int, per time.Duration) (left []time.Time, wait time.Duration) {
	left = recent(times, now, per)
	if n := len(left); n >= limit {
		return left, max(left[n-limit].Add(per).Sub(now), time.Nanosecond)
	}
	return append(left, now), 0
}

// recent returns a copy of the times that are younger than per.
func recent(times []time.Time, now time.Time, per time.Duration) []time.Time {
	out := make([]time.Time, 0, len(times)+1)
	for _, t := range times {
		if now.Sub(t) < per {
			out = append(out, t)
		}
	}
	return out
}
