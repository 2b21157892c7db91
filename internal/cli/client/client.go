package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Client sends requests to the gateways of one installation. It is safe for concurrent use.
type Client struct {
	bases    []string
	current  atomic.Uint32 // index of the current gateway; a failure moves on to the next one
	answered atomic.Bool   // a gateway has answered
	key      string
	http     *http.Client
	Warn     func(format string, args ...any) // prints a warning of the gateway; may be nil
}

const (
	dialTimeout = 5 * time.Second
	CallTimeout = 60 * time.Second // for a request whose response is not a stream
	maxBody     = 64 << 20         // bytes of such a response
)

// New returns a client for gateways, given as URLs separated by commas.
func New(urls, key string) (*Client, error) {
	c := &Client{key: key, http: &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      256 << 10,
	}}}
	for s := range strings.SplitSeq(urls, ",") {
		s = strings.TrimSuffix(strings.TrimSpace(s), "/")
		if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("gateway %q must be an http or https URL such as http://127.0.0.1:7300", s)
		}
		c.bases = append(c.bases, s)
	}
	return c, nil
}

// Gateways returns the URLs of all gateways.
func (c *Client) Gateways() []string { return c.bases }

// APIKey returns the key that requests are sent with.
func (c *Client) APIKey() string { return c.key }

// NextGateway makes the next gateway the current one.
func (c *Client) NextGateway() { c.current.Add(1) }

// Base returns the URL of the current gateway.
func (c *Client) Base() string { return c.bases[int(c.current.Load())%len(c.bases)] }

// Error is a gateway's error response.
type Error struct {
	Status    int    `json:"-"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code"`
	First     uint64 `json:"first"` // with 410: the first event that is kept
}

// Error returns the gateway's message.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Status == http.StatusUnauthorized:
		return "the gateway rejected the API key"
	}
	return "the gateway responded " + http.StatusText(e.Status)
}

// Retryable reports whether the same request may succeed later or on another gateway.
func Retryable(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Status >= 500 && e.Status != http.StatusNotImplemented || e.Status == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, context.Canceled)
}

// Request is one HTTP request to the gateway.
type Request struct {
	Method, Path string
	Query        url.Values
	Header       map[string]string
	JSON         any       // body to encode as JSON, unless nil
	Body         []byte    // body to send unchanged
	Stream       io.Reader // body to stream, unless nil; never retried
	Size         int64     // length of stream
}

// unreachableError reports that no connection to a gateway could be established, so the
// request was not sent.
type unreachableError struct {
	base string
	err  error
}

// Error returns the address and the cause.
func (e *unreachableError) Error() string {
	return fmt.Sprintf("gateway %s is unreachable: %s (start one with `millrace up`, or set --url or MILLRACE_URL)", e.base, e.reason())
}

// reason returns the cause without the address, which Error adds.
func (e *unreachableError) reason() string {
	if timeout, ok := errors.AsType[net.Error](e.err); ok && timeout.Timeout() {
		return fmt.Sprintf("no connection within %v", dialTimeout)
	}
	if errno, ok := errors.AsType[syscall.Errno](e.err); ok {
		return errno.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](e.err); ok {
		return dns.Err
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *unreachableError) Unwrap() error { return e.err }

// Open sends r and returns the response if its status is below 300; the caller closes its
// body. If a gateway is unreachable it tries the next one.
func (c *Client) Open(ctx context.Context, r *Request) (*http.Response, error) {
	body, kind := r.Body, "application/octet-stream"
	if r.JSON != nil {
		var err error
		if body, err = json.Marshal(r.JSON); err != nil {
			return nil, err
		}
		kind = "application/json"
	}
	for try := 1; ; try++ {
		resp, err := c.send(ctx, r, body, kind)
		var down *unreachableError
		if !errors.As(err, &down) || try >= len(c.bases) || r.Stream != nil {
			return resp, err
		}
	}
}

// send sends r to one gateway.
func (c *Client) send(ctx context.Context, r *Request, body []byte, kind string) (*http.Response, error) {
	at := c.current.Load()
	base := c.bases[int(at)%len(c.bases)]
	u := base + r.Path
	if len(r.Query) > 0 {
		u += "?" + r.Query.Encode()
	}
	var content io.Reader = bytes.NewReader(body)
	if r.Stream != nil {
		content = r.Stream
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u, content)
	if err != nil {
		return nil, err
	}
	if r.Stream != nil {
		req.ContentLength = r.Size
	}
	if len(body) > 0 || r.Stream != nil {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("X-API-KEY", c.key)
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.current.CompareAndSwap(at, at+1)
		if err = cause(err); ctx.Err() == nil && isDial(err) {
			return nil, &unreachableError{base, err}
		}
		return nil, fmt.Errorf("%s: %w", base, WithMessage(err))
	}
	c.answered.Store(true)
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 {
		c.current.CompareAndSwap(at, at+1)
	}
	e := &Error{Status: resp.StatusCode}
	if b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)); err == nil {
		json.Unmarshal(b, e) //nolint:errcheck // the status remains
	}
	return nil, e
}

// isDial reports whether an HTTP request failed before there was a connection.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// cause strips the URL from an HTTP error; the caller adds it.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Call sends r and decodes the response into out unless out is nil.
func (c *Client) Call(ctx context.Context, r *Request, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	resp, err := c.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil || out == nil {
		return resp.Header, WithMessage(err)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return resp.Header, fmt.Errorf("%s %s: %w", r.Method, r.Path, WithMessage(err))
	}
	return resp.Header, nil
}
