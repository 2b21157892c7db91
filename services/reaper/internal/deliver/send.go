package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/webhook"
	"github.com/millrace/millrace/internal/outbound"
)

const (
	maxResponse = 1 << 10 // maximum number of stored bytes of a response's body
	maxError    = 512     // maximum length of an error's text in bytes
)

// newClient returns a client that reaches only public addresses and those that the operator
// allows. It follows no redirect.
func newClient(operator *sandbox.Operator) *http.Client {
	policy := outbound.Policy{Operator: *operator}
	t := policy.Transport()
	t.MaxIdleConnsPerHost = maxConcurrent
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// attempt sends an event, or a batch of them, once.
func (d *deliverer) attempt(ctx context.Context, h *catalog.Hook, all []*webhook.Event, number int) webhook.Attempt {
	began := time.Now()
	e := all[0]
	a := webhook.Attempt{
		ID: string(webhook.NewID()), EventID: e.ID, Type: e.Type, Ref: e.Ref, Number: uint32(number), Time: began, URL: h.URL,
	}
	if len(all) > 1 {
		a.Events = len(all)
	}
	err := d.send(ctx, h, all, &a)
	a.Took = time.Since(began)
	if err != nil {
		a.Error = clip(describe(err, d.cfg.Timeout), maxError)
		a.Last = h.Format.Final(number, d.cfg.Attempts, int(a.Status)) && !refusedBatch(&a) && ctx.Err() == nil
	}
	return a
}

// attempt sends an event, or a batch of them, once and records the outcome. An attempt that ctx
// interrupted is not recorded: it will be repeated.
func (w *worker) attempt(ctx context.Context, h *catalog.Hook, all []*webhook.Event, number int) webhook.Attempt {
	a := w.d.attempt(ctx, h, all, number)
	// Each record is stored after the one before: concurrent ones would only conflict.
	w.logging.Lock()
	defer w.logging.Unlock()
	if ctx.Err() == nil {
		if err := w.d.cfg.Log.AppendAttempt(ctx, h.Tenant, h.ID, &a); err != nil && ctx.Err() == nil {
			w.d.cfg.Slog.Warn("record webhook delivery failed", "tenant", h.Tenant, "webhook", h.ID, "err", err)
		}
	}
	return a
}

// send makes the request and records the response in a.
func (d *deliverer) send(ctx context.Context, h *catalog.Hook, all []*webhook.Event, a *webhook.Attempt) error {
	secret, err := d.ring.Open(h.Place(), h.Secret)
	if err != nil {
		return err
	}
	header, body, err := content(h, all, secret, a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "millrace-webhooks/1")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	if t := traceOf(all[0]); t != nil && len(all) == 1 {
		req.Header.Set("Traceparent", t.ParentFor(all[0].Ref.Process))
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a.Status = uint32(resp.StatusCode)
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	a.Response = clip(string(raw), maxResponse)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("receiver responded with status %d", resp.StatusCode)
	}
	return nil
}

// clip returns text as valid UTF-8 of at most limit bytes.
func clip(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// describe returns why an attempt failed, without the URL, which may contain secrets.
func describe(err error, timeout time.Duration) string {
	var denied *kind.Error
	var name *net.DNSError
	var u *url.Error
	switch {
	case errors.As(err, &denied):
		return denied.Msg
	case errors.As(err, &name):
		return "the receiver's name has no address"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the receiver refused the connection"
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the receiver did not respond within %s", timeout)
	case errors.As(err, &u):
		return u.Err.Error()
	}
	return err.Error()
}
