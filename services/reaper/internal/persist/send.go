package persist

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/outbound"
)

const (
	maxResponse = 64 << 10 // bytes of a response that are read; a longer one is an error
	maxError    = 256      // bytes of a stored error
)

// batch is the body of a request.
type batch struct {
	Conversation string    `json:"conversation_id"`
	Sandbox      string    `json:"sandbox_id"`
	Generation   uint32    `json:"generation"`
	Messages     []message `json:"events"`
}

// newClient returns a client that reaches only addresses that a policy allows. It follows redirects that
// keep the method and the host, so that the header of a tenant never reaches another host.
func newClient(p *outbound.Policy) *http.Client {
	c := p.Client()
	check := c.CheckRedirect
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.Method != http.MethodPut || r.URL.Host != via[0].URL.Host {
			return kind.New(kind.Denied, "redirect", "", "the backend redirects to another host, or without the body")
		}
		return check(r, via)
	}
	return c
}

// send sends messages once. It returns an error unless the backend accepted them.
func (d *deliverer) send(ctx context.Context, s *sandbox.State, messages []message) error {
	p := &s.Request.E2A.Persistence
	auth, err := p.OpenAuth(d.ring, s.Tenant)
	if err != nil {
		return err
	}
	b := batch{Conversation: conversationOf(s), Sandbox: vmID(s.ID), Generation: max(1, p.Generation), Messages: messages}
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	to, err := url.Parse(p.URL)
	if err != nil {
		return errors.New("the URL is invalid")
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to.JoinPath("conversations", b.Conversation, "events").String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is invalid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "millrace-persistence/1")
	req.Header.Set("Idempotency-Key", b.Conversation+":"+messages[0].ID+"-"+messages[len(messages)-1].ID)
	if auth != "" {
		req.Header["Authorization"] = []string{auth}
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return fmt.Errorf("the backend responded with status %d", resp.StatusCode)
	case err != nil:
		return err
	case n > maxResponse:
		return errors.New("the backend's response is too long")
	}
	return nil
}

// conversationOf returns the id of a conversation in requests.
func conversationOf(s *sandbox.State) string {
	if id := s.Request.E2A.Persistence.Conversation; id != "" {
		return id
	}
	return vmID(s.ID)
}

// vmID returns the id of a sandbox as clients of e2a see it.
func vmID(id sandbox.ID) string { return "sbx_" + string(id) }

// describe returns why a request failed, without the URL and what the backend sent: both may contain
// secrets.
func describe(err error, timeout time.Duration) string {
	var denied *kind.Error
	var name *net.DNSError
	var text string
	switch {
	case errors.As(err, &denied):
		text = denied.Msg
	case errors.As(err, &name):
		text = "the backend's name has no address"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "the backend refused the connection"
	case errors.Is(err, context.DeadlineExceeded):
		text = fmt.Sprintf("the backend did not respond within %s", timeout)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		text = "the backend closed the connection within its response"
	default:
		text = err.Error()
		if u := (*url.Error)(nil); errors.As(err, &u) {
			text = connectionError(u.Err)
		}
	}
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}

// connectionError returns the text of an error of a connection or its certificate. The others quote what
// the backend sent, which may be the header.
func connectionError(err error) string {
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.As(err, &op), errors.As(err, &cert), errors.As(err, &timeout) && timeout.Timeout():
		return err.Error()
	}
	return "the backend did not send a valid response by HTTPS"
}
