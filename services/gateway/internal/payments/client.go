package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/events/kind"
)

// maxAnswer is the maximum size of a response of Stripe that is read, in bytes.
const maxAnswer = 1 << 20

// refusal is an error of Stripe. Its text has no part of a request.
type refusal struct {
	Status int    `json:"-"`
	Type   string `json:"type"`
	Code   string `json:"code"`
}

// Error implements error.
func (r *refusal) Error() string {
	return fmt.Sprintf("stripe answered with status %d, type %q, code %q", r.Status, r.Type, r.Code)
}

// declined reports whether the payment was refused, and not just the request.
func (r *refusal) declined() bool { return r.Status == http.StatusPaymentRequired }

// call sends a request and decodes the response into out. once is the idempotency key; empty: none.
func (p *Payments) call(ctx context.Context, method, path, once string, form url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	target := strings.TrimSuffix(p.cfg.API, "/") + path
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(form.Encode())
	} else {
		target += "?" + form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return kind.Wrap(kind.Internal, "call stripe", "", err)
	}
	req.Header.Set("Authorization", "Bearer "+p.cfg.Key)
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if once != "" {
		req.Header.Set("Idempotency-Key", once)
	}
	res, err := p.client.Do(req)
	if err != nil {
		return unavailable(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return unavailable(err)
	}
	if res.StatusCode != http.StatusOK {
		var failed struct {
			Error refusal `json:"error"`
		}
		_ = json.Unmarshal(raw, &failed) // the status is enough
		failed.Error.Status = res.StatusCode
		return unavailable(&failed.Error)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return unavailable(fmt.Errorf("decode the response: %w", err))
	}
	return nil
}

// unavailable is the error for clients of a call that failed.
func unavailable(err error) error {
	return &kind.Error{Op: "call stripe", Kind: kind.Unavailable, Code: "payments_failed", Msg: "the payment provider cannot be used now: try again", Err: err}
}
