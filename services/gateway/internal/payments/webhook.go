package payments

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/ledger"
)

const (
	// MaxEvent is the maximum size of a webhook, in bytes.
	MaxEvent = 256 << 10

	tolerance     = 5 * time.Minute // between the time of a signature and that of a gateway
	maxSignatures = 16
	maxTenant     = 64
)

// signed returns whether a header has a valid signature of a body (Stripe-Signature, scheme v1).
func (p *Payments) signed(body []byte, header string) bool {
	var stamp string
	var signatures []string
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case name == "t" && stamp == "":
			stamp = value
		case name == "t":
			return false
		case name == "v1" && len(signatures) < maxSignatures:
			signatures = append(signatures, value)
		}
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || p.cfg.Now().Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	mac := hmac.New(sha256.New, []byte(p.cfg.WebhookKey))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	ok := false
	for _, s := range signatures {
		got, err := hex.DecodeString(s)
		ok = hmac.Equal(got, want) && err == nil || ok
	}
	return ok
}

// event is a webhook of Stripe.
type event struct {
	Type string `json:"type"`
	Data struct {
		Object object `json:"object"`
	} `json:"data"`
}

// object is what an event is about, as far as events have it.
type object struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Currency string `json:"currency"`
	Paid     string `json:"payment_status"`  // of a checkout
	Total    int64  `json:"amount_total"`    // of a checkout
	Received int64  `json:"amount_received"` // of a payment
	Refunded int64  `json:"amount_refunded"` // of a charge, of all refunds together
	Metadata struct {
		Tenant string `json:"tenant"`
		Number string `json:"number"` // of an automatic payment
	} `json:"metadata"`
}

func invalid(code, msg string) error { return kind.Coded(kind.Invalid, "read webhook", "", code, msg) }

// Event stores what a webhook of Stripe says. It returns Invalid if the webhook is not signed, or cannot be
// read, and nil for one that says nothing about credits.
func (p *Payments) Event(ctx context.Context, body []byte, signature string) error {
	if !p.signed(body, signature) {
		return invalid("invalid_signature", "the signature is missing, wrong, or too old")
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return invalid("invalid", "the event cannot be read")
	}
	o := &e.Data.Object
	tenant := o.Metadata.Tenant
	if tenant == "" {
		return nil // of another use of the account
	}
	if !validTenant(tenant) || o.ID == "" {
		return invalid("invalid", "the event has no valid tenant, or no id")
	}
	switch e.Type {
	case "checkout.session.completed", "checkout.session.async_payment_succeeded":
		if o.Paid != "paid" {
			return nil
		}
		return p.paid(ctx, tenant, o)
	case "payment_intent.succeeded", "payment_intent.payment_failed":
		if o.Metadata.Number == "" {
			return nil // of a checkout, which has its own event
		}
		return p.automatic(ctx, tenant, o, e.Type == "payment_intent.succeeded")
	case "charge.refunded":
		return p.add(ctx, tenant, o, ledger.Entry{ID: "refund_" + o.ID, Kind: ledger.Refund, Cents: -o.Refunded})
	}
	return nil
}

// paid stores the payment of a checkout.
func (p *Payments) paid(ctx context.Context, tenant string, o *object) error {
	if err := p.add(ctx, tenant, o, ledger.Entry{ID: o.ID, Kind: ledger.Payment, Cents: o.Total}); err != nil || o.Customer == "" {
		return err
	}
	_, err := p.cfg.Ledger.Change(ctx, tenant, func(t *ledger.Topup) (ledger.Body, error) {
		if t.Customer != "" {
			return nil, nil
		}
		return ledger.Paid{Customer: o.Customer}, nil
	})
	return err
}

// automatic stores the result of an automatic payment.
func (p *Payments) automatic(ctx context.Context, tenant string, o *object, succeeded bool) error {
	number, err := strconv.ParseInt(o.Metadata.Number, 10, 64)
	if err != nil || number < 1 {
		return invalid("invalid", "the event has no valid number")
	}
	if !succeeded {
		return p.finish(ctx, tenant, ledger.Declined{Number: number}, number)
	}
	if err := p.add(ctx, tenant, o, ledger.Entry{ID: ledger.AutoID(number), Kind: ledger.Auto, Cents: o.Received}); err != nil {
		return err
	}
	return p.finish(ctx, tenant, ledger.Received{Number: number}, number)
}

func (p *Payments) add(ctx context.Context, tenant string, o *object, e ledger.Entry) error {
	if o.Currency != currency {
		return invalid("invalid", "the currency is not "+currency)
	}
	e.Tenant, e.At = tenant, p.cfg.Now()
	_, err := p.cfg.Ledger.Add(ctx, e)
	return err
}

// validTenant reports whether a tenant from outside can be part of a subject.
func validTenant(s string) bool {
	if s == "" || len(s) > maxTenant {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}
