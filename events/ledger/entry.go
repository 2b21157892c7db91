package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/millrace/millrace/events/usage"
)

// Kinds of entries.
const (
	Payment = "payment" // of a user
	Auto    = "auto"    // an automatic payment
	Refund  = "refund"
)

// MaxCents is the maximum amount of an entry. A balance of a billion entries fits into 64 bits.
const MaxCents = 99_999_999

// Entry is a payment or a refund.
type Entry struct {
	Tenant string
	ID     string // of the payment at the payment provider, or AutoID
	Kind   string
	Cents  int64 // negative: a refund
	At     time.Time

	Rev uint64 // stream sequence of its message; 0: it is not stored
}

// AutoID returns the id of the entry of an automatic payment.
func AutoID(number int64) string { return "auto_" + strconv.FormatInt(number, 10) }

const keyBytes = 16 // of the hash of an id

// Key returns a token that identifies the entry among those of its tenant.
func (e *Entry) Key() string {
	sum := sha256.Sum256([]byte(e.ID))
	return hex.EncodeToString(sum[:keyBytes])
}

// valid reports whether the entry can be stored.
func (e *Entry) valid() bool {
	switch e.Kind {
	case Payment, Auto:
		return e.ID != "" && 0 < e.Cents && e.Cents <= MaxCents
	case Refund:
		return e.ID != "" && -MaxCents <= e.Cents && e.Cents < 0
	}
	return false
}

// replaces reports whether the entry changes the one of the same id. Only a refund may grow, because a
// payment may be refunded in parts.
func (e *Entry) replaces(was *Entry) bool {
	return was.Rev == 0 || e.Kind == Refund && was.Kind == Refund && e.Cents < was.Cents
}

// Day is the usage of a day and what it costs.
type Day struct {
	usage.Daily
	Price   usage.Price // that was applied
	Cents   int64       // of the deduction; not negative
	Settled bool        // it does not change any more

	Rev uint64 // stream sequence of its message; 0: it is not stored
}

// SettleAfter is the number of days after which a day is settled. Usage that reaches the log later is not
// charged.
const SettleAfter = 3

// Update returns the day with its usage as of a fold of facts on the day today. price is that of a day
// that was not stored before.
func (d Day) Update(used usage.Daily, price usage.Price, today usage.Day) Day {
	if d.Settled {
		return d
	}
	if d.Rev == 0 {
		d.Price = price
	}
	d.Daily, d.Cents = used, d.Price.Cents(used.CPU)
	d.Settled = today-d.Daily.Day > SettleAfter
	return d
}
