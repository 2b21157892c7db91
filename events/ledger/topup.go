package ledger

import (
	"time"

	"github.com/millrace/millrace/events/kind"
)

// Topup has the settings and the progress of a tenant's automatic payments.
type Topup struct {
	Tenant    string
	Enabled   bool
	Threshold int64     // cents; a payment is due while the balance is below
	Amount    int64     // cents of a payment
	Customer  string    // id of the payer at the payment provider; empty: unknown
	Number    int64     // of the last automatic payment
	Pending   int64     // cents of that payment while it has no result
	Asked     time.Time // when it was stored

	Rev uint64 // stream sequence, which the next change must expect
}

// Phase is what automatic payments wait for.
type Phase uint8

// The phases.
const (
	Idle    Phase = iota // no payment is on its way
	Waiting              // the result of a payment is unknown
)

// Phase returns the phase.
func (t *Topup) Phase() Phase {
	if t.Pending > 0 {
		return Waiting
	}
	return Idle
}

// Due reports whether a payment is due at a balance.
func (t *Topup) Due(balance int64) bool {
	return t.Phase() == Idle && t.Enabled && t.Customer != "" && balance < t.Threshold
}

// Body is one of Configured, Paid, Requested, Received or Declined.
//
//sumtype:decl
type Body interface {
	Kind() string
	apply(t *Topup)
}

// Configured says that the tenant changed the settings.
type Configured struct {
	Enabled           bool
	Threshold, Amount int64
}

// Paid says that the tenant paid as a customer of the payment provider.
type Paid struct{ Customer string }

// Requested says that an automatic payment is due.
type Requested struct{ At time.Time }

// Received says that the ledger has the automatic payment of a number.
type Received struct{ Number int64 }

// Declined says that the automatic payment of a number failed. It disables automatic payments.
type Declined struct{ Number int64 }

// Kind returns the name of the event.
func (Configured) Kind() string { return "configured" }

// Kind returns the name of the event.
func (Paid) Kind() string { return "paid" }

// Kind returns the name of the event.
func (Requested) Kind() string { return "requested" }

// Kind returns the name of the event.
func (Received) Kind() string { return "received" }

// Kind returns the name of the event.
func (Declined) Kind() string { return "declined" }

// possible are the events that can happen in each phase.
var possible = map[Phase]map[string]bool{
	Idle:    {"configured": true, "paid": true, "requested": true},
	Waiting: {"configured": true, "paid": true, "received": true, "declined": true},
}

// Apply returns the state after an event. It returns Invalid if the event cannot happen.
func (t *Topup) Apply(b Body) (Topup, error) {
	number := t.Number
	switch e := b.(type) {
	case Received:
		number = e.Number
	case Declined:
		number = e.Number
	case Configured, Paid, Requested:
	}
	if !possible[t.Phase()][b.Kind()] || number != t.Number {
		return *t, kind.Newf(kind.Invalid, "apply", t.Tenant, "%s in phase %d", b.Kind(), t.Phase())
	}
	out := *t
	b.apply(&out)
	return out, nil
}

func (e Configured) apply(t *Topup) {
	t.Enabled, t.Threshold, t.Amount = e.Enabled, e.Threshold, e.Amount
}

func (e Paid) apply(t *Topup) { t.Customer = e.Customer }

func (e Requested) apply(t *Topup) {
	t.Number, t.Pending, t.Asked = t.Number+1, t.Amount, e.At
}

func (Received) apply(t *Topup) { t.Pending, t.Asked = 0, time.Time{} }

func (Declined) apply(t *Topup) { t.Pending, t.Asked, t.Enabled = 0, time.Time{}, false }
