package e2e_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

const (
	stripeMock = "github.com/stripe/stripe-mock@v0.203.0"
	webhookKey = "whsec_e2e"
)

// startStripe starts stripe-mock and returns the arguments of a gateway that uses it.
func startStripe(t *testing.T) []string {
	t.Helper()
	program, err := rig.StartTool(t, stripeMock, func(addr string) []string { return []string{"-http-addr", addr} })
	must(t, err)
	dir := t.TempDir()
	secret := func(name, value string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
		return path
	}
	return []string{
		"--stripe-api", "http://" + program, "--stripe-key", secret("key", "sk_test_123"), "--stripe-webhook-key", secret("webhook", webhookKey),
		"--stripe-return", "https://example.com/paid",
	}
}

// paidEvent is the webhook of a checkout that was paid.
func paidEvent(tenant, id string, cents int64) string {
	return fmt.Sprintf(`{"id":"evt_%s","object":"event","type":"checkout.session.completed","data":{"object":{"id":%q,"object":"checkout.session","customer":"cus_1","currency":"usd","payment_status":"paid","amount_total":%d,"metadata":{"tenant":%q}}}}`, id, id, cents, tenant)
}

// webhook is a delivery of Stripe.
type webhook struct {
	body, key string
	at        time.Time
	written   func() // called when the request is sent; nil: nothing
}

// deliver sends a webhook to a gateway.
func (w *webhook) deliver(ctx context.Context, a *rig.API) (status int, body string, err error) {
	if w.written != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { w.written() }})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+"/v1/billing/webhook", strings.NewReader(w.body))
	if err != nil {
		return 0, "", err
	}
	mac := hmac.New(sha256.New, []byte(w.key))
	fmt.Fprintf(mac, "%d.%s", w.at.Unix(), w.body)
	req.Header.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%s", w.at.Unix(), hex.EncodeToString(mac.Sum(nil))))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

func signed(body string) *webhook { return &webhook{body: body, key: webhookKey, at: time.Now()} }

// want fails unless a gateway responds to a webhook with a status.
func (w *webhook) want(t *testing.T, a *rig.API, status int, text string) {
	t.Helper()
	got, body, err := w.deliver(t.Context(), a)
	if err != nil || got != status || !strings.Contains(body, text) {
		t.Errorf("%d %s, %v; want %d %s", got, body, err, status, text)
	}
}

// E-341, E-343: a checkout at stripe-mock, and signed webhooks. Each payment counts once: delivered twice, to two
// gateways at the same time, and to a gateway that is killed before it responds.
func TestE2ACredits(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, GatewayArgs: append(startStripe(t), "--sign-up-test-mode")})
	token := []string{"Authorization", "Bearer " + userToken(t, s.APIs[0].URL)}
	var made struct{ Key string }
	s.APIs[0].Want(t, 201, "POST", "/v1/api-keys", `{"name":"billing"}`, token...).Decode(t, &made)
	var you struct {
		Tenant string `json:"tenant_id"`
	}
	s.APIs[0].Want(t, 200, "GET", "/v1/usage", nil, "Authorization", "Bearer "+made.Key).Decode(t, &you)
	balance := func(a *rig.API) int64 {
		t.Helper()
		var b struct {
			Balance int64 `json:"credit_balance"`
		}
		a.Want(t, 200, "GET", "/v1/billing/balance", nil, token...).Decode(t, &b)
		return b.Balance
	}

	var checkout struct{ URL string }
	s.APIs[1].Want(t, 200, "POST", "/v1/billing/checkout", `{"credit_amount":1000}`, token...).Decode(t, &checkout)
	if u, err := url.Parse(checkout.URL); err != nil || u.Scheme != "https" || u.Host != "checkout.stripe.com" {
		t.Errorf("checkout at %q, %v", checkout.URL, err)
	}

	first := paidEvent(you.Tenant, "cs_1", 1000)
	forged := signed(first)
	forged.key = "whsec_other"
	forged.want(t, s.APIs[0], 400, "invalid_signature")
	for _, age := range []time.Duration{-time.Hour, time.Hour} {
		old := signed(first)
		old.at = old.at.Add(age)
		old.want(t, s.APIs[0], 400, "invalid_signature")
	}
	signed(first+strings.Repeat(" ", 300<<10)).want(t, s.APIs[0], 413, "")
	signed(`{"type":`).want(t, s.APIs[0], 400, "invalid")
	if b := balance(s.APIs[1]); b != 0 {
		t.Fatalf("balance %d after webhooks that were refused", b)
	}

	var deliveries sync.WaitGroup
	for i := range 8 {
		deliveries.Go(func() { signed(first).want(t, s.APIs[i%2], 200, "") })
	}
	deliveries.Wait()
	want := int64(1000)
	for i, a := range s.APIs {
		if b := balance(a); b != want {
			t.Errorf("balance %d at gateway %d, want %d", b, i+1, want)
		}
	}

	for round := range 2 {
		e := paidEvent(you.Tenant, fmt.Sprintf("cs_killed_%d", round), 500)
		sent := make(chan struct{})
		w := signed(e)
		w.written = sync.OnceFunc(func() { close(sent) })
		deliveries.Go(func() { _, _, _ = w.deliver(t.Context(), s.APIs[0]) }) // the gateway may be killed first
		<-sent
		want += 500
		if round == 1 && !rig.Poll(time.Minute, func() bool { return balance(s.APIs[1]) == want }) {
			t.Fatal("the payment was not stored")
		}
		s.Program("gateway-1").Kill9()
		deliveries.Wait()
		signed(e).want(t, s.APIs[1], 200, "")
		must(t, s.RestartProgram("gateway-1"))
		signed(e).want(t, s.APIs[0], 200, "")
		for i, a := range s.APIs {
			if b := balance(a); b != want {
				t.Errorf("round %d: balance %d at gateway %d, want %d", round, b, i+1, want)
			}
		}
	}

	var list struct {
		Transactions []struct{ Amount int64 }
	}
	s.APIs[0].Want(t, 200, "GET", "/v1/billing/transactions", nil, token...).Decode(t, &list)
	if len(list.Transactions) != 3 {
		t.Errorf("transactions: %+v", list)
	}
}
