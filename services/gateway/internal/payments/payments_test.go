package payments_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/ledger"
	"github.com/millrace/millrace/services/gateway/internal/payments"
)

// stripe is a server with the three requests of Stripe. A request with the idempotency key of an earlier
// one is the same payment.
type stripe struct {
	mu       sync.Mutex
	status   int
	intents  map[string]string // forms by idempotency key
	requests int
}

func (s *stripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer sk_test_1" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if err := r.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch r.URL.Path {
	case "/v1/checkout/sessions":
		fmt.Fprintf(w, `{"id":"cs_1","url":"https://checkout.stripe.com/pay/%s/%s"}`, r.Form.Get("metadata[tenant]"), r.Form.Get("line_items[0][price_data][unit_amount]"))
	case "/v1/customers/cus_1/payment_methods":
		fmt.Fprint(w, `{"data":[{"id":"pm_1"}]}`)
	case "/v1/payment_intents":
		s.requests++
		if s.status != 0 {
			w.WriteHeader(s.status)
			fmt.Fprint(w, `{"error":{"type":"card_error","code":"card_declined"}}`)
			return
		}
		key, form := r.Header.Get("Idempotency-Key"), r.Form.Encode()
		if was, ok := s.intents[key]; ok && was != form {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.intents[key] = form
		fmt.Fprint(w, `{"id":"pi_1","status":"succeeded"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

type fixture struct {
	*testing.T
	srv    *eventstest.Server
	stripe *stripe
	url    string
	now    time.Time
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, srv: eventstest.Start(t), stripe: &stripe{intents: make(map[string]string)}, now: time.Now()}
	s := httptest.NewServer(f.stripe)
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

// gateway returns the payments of a gateway and its ledger.
func (f *fixture) gateway() (*payments.Payments, *ledger.Store) {
	f.Helper()
	l := eventstest.Open(f.T, f.srv).Ledger()
	if err := l.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	return payments.New(payments.Config{
		Key: "sk_test_1", WebhookKey: "whsec_1", API: f.url, Return: "https://example.com", Ledger: l,
		Now: func() time.Time { return f.now }, Slog: slog.New(slog.DiscardHandler),
	}), l
}

func (f *fixture) balance(l *ledger.Store) int64 {
	f.Helper()
	if err := l.Sync(f.Context()); err != nil {
		f.Fatal(err)
	}
	b := l.Book("usr_1")
	return b.Balance()
}

func sign(body, key string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"id":"evt_1","type":%q,"data":{"object":%s}}`, kind, object)
}

const paid = `{"id":"cs_1","customer":"cus_1","currency":"usd","payment_status":"paid","amount_total":1000,"metadata":{"tenant":"usr_1"}}`

// E-343: each payment and each refund counts once, in any order, on any gateway.
func TestEventsOnce(t *testing.T) {
	f := newFixture(t)
	first, l := f.gateway()
	second, other := f.gateway()
	bodies := []string{
		event("charge.refunded", `{"id":"ch_1","currency":"usd","amount_refunded":300,"metadata":{"tenant":"usr_1"}}`),
		event("checkout.session.async_payment_succeeded", paid),
		event("checkout.session.completed", paid),
		event("charge.refunded", `{"id":"ch_1","currency":"usd","amount_refunded":100,"metadata":{"tenant":"usr_1"}}`),
		event("payment_intent.succeeded", `{"id":"pi_9","currency":"usd","amount_received":500,"metadata":{"tenant":"usr_1","number":"1"}}`),
		event("payment_intent.succeeded", `{"id":"pi_1","currency":"usd","amount_received":1000,"metadata":{"tenant":"usr_1"}}`),
		event("checkout.session.completed", strings.Replace(paid, `"paid"`, `"unpaid"`, 1)),
		event("customer.created", `{"id":"cus_1"}`),
	}
	var all sync.WaitGroup
	for i, p := range []*payments.Payments{first, second, first} {
		all.Go(func() {
			for j := range bodies {
				b := bodies[(i+j)%len(bodies)]
				if err := p.Event(t.Context(), []byte(b), sign(b, "whsec_1", f.now)); err != nil {
					t.Errorf("%s: %v", b, err)
				}
			}
		})
	}
	all.Wait()
	for _, l := range []*ledger.Store{l, other} {
		if got := f.balance(l); got != 1200 {
			t.Errorf("balance %d", got)
		}
	}
	if got := l.Book("usr_1").Topup.Customer; got != "cus_1" {
		t.Errorf("customer %q", got)
	}
}

// Forged, old, reordered and malformed webhooks change nothing.
func TestEventRejects(t *testing.T) {
	f := newFixture(t)
	p, l := f.gateway()
	body := event("checkout.session.completed", paid)
	good := sign(body, "whsec_1", f.now)
	_, digest, _ := strings.Cut(good, ",")
	for name, tt := range map[string]struct{ body, signature string }{
		"no signature":    {body, ""},
		"another key":     {body, sign(body, "whsec_2", f.now)},
		"another body":    {body + " ", good},
		"too old":         {body, sign(body, "whsec_1", f.now.Add(-6*time.Minute))},
		"of the future":   {body, sign(body, "whsec_1", f.now.Add(6*time.Minute))},
		"two times":       {body, "t=1," + good},
		"no time":         {body, digest},
		"a huge time":     {body, "t=9223372036854775807," + digest},
		"half":            {body, good[:len(good)-2]},
		"an old scheme":   {body, strings.Replace(good, "v1=", "v0=", 1)},
		"no JSON":         {"x", sign("x", "whsec_1", f.now)},
		"a huge amount":   signed(f, strings.Replace(paid, "1000", "99999999999999999999", 1)),
		"above the limit": signed(f, strings.Replace(paid, "1000", "100000000", 1)),
		"nothing":         signed(f, strings.Replace(paid, "1000", "0", 1)),
		"negative":        signed(f, strings.Replace(paid, "1000", "-5", 1)),
		"a fraction":      signed(f, strings.Replace(paid, "1000", "1.5", 1)),
		"other currency":  signed(f, strings.Replace(paid, "usd", "jpy", 1)),
		"a subject":       signed(f, strings.Replace(paid, "usr_1", "usr.*.>", 1)),
		"no id":           signed(f, strings.Replace(paid, "cs_1", "", 1)),
	} {
		if err := p.Event(t.Context(), []byte(tt.body), tt.signature); !kind.Is(err, kind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := f.balance(l); got != 0 {
		t.Errorf("balance %d", got)
	}
	if err := p.Event(t.Context(), []byte(body), "v1=00,"+good); err != nil {
		t.Errorf("a second signature, of an older secret: %v", err)
	}
}

func signed(f *fixture, object string) struct{ body, signature string } {
	b := event("checkout.session.completed", object)
	return struct{ body, signature string }{b, sign(b, "whsec_1", f.now)}
}

// E-348: below the threshold, one payment is made, by whichever gateway; also if a gateway dies between
// any two steps.
func TestTopUpOnce(t *testing.T) {
	f := newFixture(t)
	first, l := f.gateway()
	second, other := f.gateway()
	apply := func(bodies ...ledger.Body) {
		t.Helper()
		for _, b := range bodies {
			if _, err := l.Change(t.Context(), "usr_1", func(*ledger.Topup) (ledger.Body, error) { return b, nil }); err != nil {
				t.Fatal(err)
			}
		}
		f.balance(l)
		f.balance(other)
	}
	both := func() {
		var all sync.WaitGroup
		for p, l := range map[*payments.Payments]*ledger.Store{first: l, second: other} {
			all.Go(func() {
				f.balance(l)
				p.TopUp(t.Context(), func(string) int64 { b := l.Book("usr_1"); return b.Balance() })
			})
		}
		all.Wait()
	}
	apply(ledger.Configured{Enabled: true, Threshold: 100, Amount: 500})
	both()
	if f.stripe.requests != 0 {
		t.Error("a payment without a payer")
	}
	apply(ledger.Paid{Customer: "cus_1"})
	for range 3 {
		both()
	}
	if got := f.balance(l); got != 500 || len(f.stripe.intents) != 1 {
		t.Errorf("balance %d, %d payments", got, len(f.stripe.intents))
	}
	// A gateway that died after the request was stored, and before Stripe had it.
	apply(ledger.Requested{At: f.now})
	both()
	both()
	if got := f.balance(l); got != 1000 || len(f.stripe.intents) != 2 {
		t.Errorf("after a request without an answer: balance %d, %d payments", got, len(f.stripe.intents))
	}
	// One that died after the entry was stored.
	apply(ledger.Requested{At: f.now})
	if _, err := l.Add(t.Context(), ledger.Entry{Tenant: "usr_1", ID: ledger.AutoID(3), Kind: ledger.Auto, Cents: 500, At: f.now}); err != nil {
		t.Fatal(err)
	}
	both()
	if got := f.balance(l); got != 1500 || len(f.stripe.intents) != 2 || len(l.Topups()) != 1 {
		t.Errorf("after an entry without an end: balance %d, %d payments", got, len(f.stripe.intents))
	}
	// A refusal disables automatic payments.
	f.stripe.status = http.StatusPaymentRequired
	apply(ledger.Requested{At: f.now})
	both()
	if f.balance(l); len(l.Topups()) != 0 {
		t.Errorf("after a refusal: %+v", l.Topups())
	}
}

// The secret key is in no error, and an error of Stripe is Unavailable.
func TestCheckout(t *testing.T) {
	f := newFixture(t)
	p, _ := f.gateway()
	if got, err := p.Checkout(t.Context(), "usr_1", 700); got != "https://checkout.stripe.com/pay/usr_1/700" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	f.url += "/nowhere"
	p, _ = f.gateway()
	if _, err := p.Checkout(t.Context(), "usr_1", 700); !kind.Is(err, kind.Unavailable) || strings.Contains(err.Error(), "sk_test") {
		t.Errorf("%v", err)
	}
}
