package cli

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
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// client sends requests to the gateways of one installation. It is safe for concurrent use.
type client struct {
	bases    []string
	current  atomic.Uint32 // index of the current gateway; a failure moves on to the next one
	answered atomic.Bool   // a gateway has answered
	key      string
	http     *http.Client
	notef    func(format string, args ...any) // prints a warning of the gateway
}

const (
	dialTimeout = 5 * time.Second
	callTimeout = 60 * time.Second // for a request whose response is not a stream
	maxBody     = 64 << 20         // bytes of such a response
)

// client returns a client for the gateways and the key from the flags, else the
// environment, else the local data directory.
func (a *app) client() (*client, error) {
	urls, key := a.url, a.key
	if urls == "" {
		urls = a.Getenv("MILLRACE_URL")
	}
	if key == "" {
		key = a.Getenv("MILLRACE_API_KEY")
	}
	dir, err := a.dataDir()
	if err != nil && (urls == "" || key == "") {
		return nil, err
	}
	if urls == "" {
		if urls, err = readTrimmed(filepath.Join(dir, AddressFile)); err != nil {
			return nil, fmt.Errorf("no gateway configured: start `millrace up`, or set --url or MILLRACE_URL (%w)", err)
		}
	}
	if key == "" {
		key, _ = readTrimmed(filepath.Join(dir, KeyFile)) //nolint:errcheck // a gateway that requires a key responds 401
	}
	c, err := newClient(urls, key)
	if err == nil {
		c.notef = a.notef
	}
	return c, err
}

func (a *app) dataDir() (string, error) {
	if a.data != "" {
		return a.data, nil
	}
	return DataDir(a.Getenv)
}

func readTrimmed(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

func newClient(urls, key string) (*client, error) {
	c := &client{key: key, http: &http.Client{Transport: &http.Transport{
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

// base returns the URL of the current gateway.
func (c *client) base() string { return c.bases[int(c.current.Load())%len(c.bases)] }

// apiError is a gateway's error response.
type apiError struct {
	Status    int    `json:"-"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code"`
	First     uint64 `json:"first"` // with 410: the first event that is kept
}

// Error returns the gateway's message.
func (e *apiError) Error() string {
	switch {
	case e.Message != "":
		return e.Message
	case e.Status == http.StatusUnauthorized:
		return "the gateway rejected the API key"
	}
	return "the gateway responded " + http.StatusText(e.Status)
}

// retryable reports whether the same request may succeed later or on another gateway.
func retryable(err error) bool {
	var e *apiError
	if errors.As(err, &e) {
		return e.Status >= 500 && e.Status != http.StatusNotImplemented || e.Status == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, context.Canceled)
}

// request is one HTTP request to the gateway.
type request struct {
	method, path string
	query        url.Values
	header       map[string]string
	json         any       // body to encode as JSON, unless nil
	body         []byte    // body to send unchanged
	stream       io.Reader // body to stream, unless nil; never retried
	size         int64     // length of stream
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

// open sends r and returns the response if its status is below 300; the caller closes its
// body. If a gateway is unreachable it tries the next one.
func (c *client) open(ctx context.Context, r *request) (*http.Response, error) {
	body, kind := r.body, "application/octet-stream"
	if r.json != nil {
		var err error
		if body, err = json.Marshal(r.json); err != nil {
			return nil, err
		}
		kind = "application/json"
	}
	for try := 1; ; try++ {
		resp, err := c.send(ctx, r, body, kind)
		var down *unreachableError
		if !errors.As(err, &down) || try >= len(c.bases) || r.stream != nil {
			return resp, err
		}
	}
}

// send sends r to one gateway.
func (c *client) send(ctx context.Context, r *request, body []byte, kind string) (*http.Response, error) {
	at := c.current.Load()
	base := c.bases[int(at)%len(c.bases)]
	u := base + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	var content io.Reader = bytes.NewReader(body)
	if r.stream != nil {
		content = r.stream
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u, content)
	if err != nil {
		return nil, err
	}
	if r.stream != nil {
		req.ContentLength = r.size
	}
	if len(body) > 0 || r.stream != nil {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("X-API-KEY", c.key)
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.current.CompareAndSwap(at, at+1)
		if err = cause(err); ctx.Err() == nil && isDial(err) {
			return nil, &unreachableError{base, err}
		}
		return nil, fmt.Errorf("%s: %w", base, withMessage(err))
	}
	c.answered.Store(true)
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode >= 500 {
		c.current.CompareAndSwap(at, at+1)
	}
	e := &apiError{Status: resp.StatusCode}
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

// call sends r and decodes the response into out unless out is nil.
func (c *client) call(ctx context.Context, r *request, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil || out == nil {
		return resp.Header, withMessage(err)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return resp.Header, fmt.Errorf("%s %s: %w", r.method, r.path, withMessage(err))
	}
	return resp.Header, nil
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
