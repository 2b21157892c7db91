package backendclient

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fasthttp/websocket"
)

// Client sends requests to a gateway. It is safe for concurrent use.
type Client struct {
	base              *url.URL
	access, secretKey string
	http              *http.Client
}

// version is the version of the API that the client uses.
const version = "v6.20220315"

// New returns a client with a key pair.
func New(gateway, access, secret string) (*Client, error) {
	u, err := url.Parse(gateway)
	return &Client{base: u, access: access, secretKey: secret, http: &http.Client{}}, err
}

// sign adds the headers of a signed request.
func (c *Client) sign(req *http.Request) {
	now := time.Now().UTC()
	date := now.Format("2006-01-02T15:04:05.000000+00:00")
	media := req.Header.Get("Content-Type")
	if media == "" {
		media = "application/octet-stream"
	}
	empty := sha256.Sum256(nil)
	text := strings.Join([]string{
		req.Method, req.URL.RequestURI(), date, "host:" + c.base.Host, "content-type:" + media,
		"x-backendai-version:" + version, hex.EncodeToString(empty[:]),
	}, "\n")
	key := []byte(c.secretKey)
	for _, part := range []string{now.Format("20060102"), c.base.Host, text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	req.Header.Set("Date", date)
	req.Header.Set("X-BackendAI-Version", version)
	req.Header.Set("Authorization", "BackendAI signMethod=HMAC-SHA256, credential="+c.access+":"+hex.EncodeToString(key))
}

// Do sends a request, with JSON if body is not nil, and decodes the response if into is not nil.
func (c *Client) Do(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.sign(req)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s %s", method, path, res.Status, raw)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// Dial opens a WebSocket connection.
func (c *Client) Dial(ctx context.Context, path string) (*Conn, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.String()+path, nil)
	if err != nil {
		return nil, err
	}
	c.sign(req)
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(req.URL.String(), "http"), req.Header)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	return &Conn{ws: ws}, nil
}
