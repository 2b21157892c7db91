package httpclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// Dial opens a stream to the egress proxy of the sandbox.
type Dial func(ctx context.Context) (net.Conn, error)

// Client implements [session.HTTP]. Its methods may be called concurrently.
type Client struct {
	dial      Dial
	roots     *x509.CertPool
	transport func() *http.Transport // made for the first request: most sessions send none
}

const (
	maxRedirects    = 10
	maxHead         = 256 << 10 // bytes of the head of a response
	connectTimeout  = 30 * time.Second
	continueTimeout = time.Second
)

// New returns a client whose connections dial opens. It trusts the system's authorities and,
// if roots is not nil, those instead: hosts answer for domains with rules in their own name.
func New(dial Dial, roots *x509.CertPool) *Client {
	c := &Client{dial: dial, roots: roots}
	c.transport = sync.OnceValue(c.newTransport)
	return c
}

func (c *Client) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: c.connect, ForceAttemptHTTP2: true,
		DisableCompression:  true, // the client asked for the bytes as they are
		DisableKeepAlives:   true, // a sandbox that stops must leave no connection here
		TLSClientConfig:     &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: connectTimeout, ExpectContinueTimeout: continueTimeout,
		MaxResponseHeaderBytes: maxHead,
	}
}

// connect asks the proxy for a connection.
func (c *Client) connect(ctx context.Context, _, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = handshake(conn, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// handshake sends a CONNECT and reads its answer, byte by byte: what follows belongs to the
// connection.
func handshake(conn net.Conn, address string) error {
	if _, err := io.WriteString(conn, "CONNECT "+address+" HTTP/1.1\r\nHost: "+address+"\r\n\r\n"); err != nil {
		return err
	}
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); head = append(head, b[0]) {
		if len(head) > maxHead {
			return kind.New(kind.Unavailable, "connect", address, "the answer of the egress proxy is too long")
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusForbidden:
		return kind.Newf(kind.Denied, "connect", address, "the sandbox may not connect to %s", address)
	}
	return kind.Newf(kind.Unavailable, "connect", address, "cannot connect to %s: %s", address, resp.Status)
}

// ofConnection are the headers that the connection sets itself.
var ofConnection = map[string]bool{
	"connection": true, "content-length": true, "keep-alive": true, "proxy-authenticate": true, "proxy-authorization": true,
	"proxy-connection": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

// Do implements [session.HTTP].
func (c *Client) Do(ctx context.Context, p *protocol.HTTPParams) (*session.HTTPResponse, error) {
	var body io.Reader
	if p.Body != nil {
		body = bytes.NewReader(*p.Body)
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, p.URL, body)
	if err != nil {
		return nil, kind.New(kind.Invalid, "http/request", "", "invalid request")
	}
	req.Header["User-Agent"] = []string{""} // none, unless the client sets one
	for _, h := range p.Headers {
		switch name := strings.ToLower(h.Name); {
		case ofConnection[name]:
		case name == "host":
			req.Host = h.Value
		case name == "user-agent":
			req.Header.Set(h.Name, h.Value)
		default:
			req.Header.Add(h.Name, h.Value)
		}
	}
	client := http.Client{Transport: c.transport(), CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		switch {
		case p.RedirectPolicy == "stop":
			return http.ErrUseLastResponse
		case len(via) > maxRedirects:
			return kind.Newf(kind.Unavailable, "http/request", "", "more than %d redirects", maxRedirects)
		}
		return nil
	}}
	resp, err := client.Do(req) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, failed(ctx, err)
	}
	return &session.HTTPResponse{Status: resp.StatusCode, Headers: headersOf(resp.Header), Body: &bodyReader{ctx, resp.Body}}, nil
}

// failed returns the error for the client, which contains neither the URL nor its query.
func failed(ctx context.Context, err error) error {
	var own *kind.Error
	var of *url.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return kind.New(kind.Deadline, "http/request", "", "the request timed out")
	case errors.As(err, &own):
		return err
	case errors.As(err, &of):
		err = of.Err
	}
	return kind.Wrap(kind.Unavailable, "http/request", "", err)
}

// headersOf returns the headers of a response, sorted by name. The values of one name keep their
// order.
func headersOf(h http.Header) []protocol.Header {
	out := make([]protocol.Header, 0, len(h))
	for name, values := range h {
		for _, v := range values {
			out = append(out, protocol.Header{Name: strings.ToLower(name), Value: strings.ToValidUTF8(v, "\ufffd")})
		}
	}
	slices.SortStableFunc(out, func(a, b protocol.Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// bodyReader reads a body and returns errors for the client.
type bodyReader struct {
	ctx  context.Context //nolint:containedctx // of the request, which limits the body
	body io.ReadCloser
}

// Read implements [io.Reader].
func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = failed(b.ctx, err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *bodyReader) Close() error { return b.body.Close() }
