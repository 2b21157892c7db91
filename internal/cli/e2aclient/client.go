// Package e2aclient is a client of e2a's sessions, as far as the command bench needs one.
package e2aclient

import (
	"context"
	"net/http"
	"strings"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/internal/cli/client"
)

// Client is a client with one API key. It is safe for concurrent use.
type Client struct{ c *client.Client }

// New returns a client that sends its requests with c.
func New(c *client.Client) *Client { return &Client{c} }

// Do sends a request with a JSON body, unless it is nil, and decodes the response into out, unless
// that is nil.
func (c *Client) Do(ctx context.Context, method, path string, body, out any) error {
	r := &client.Request{Method: method, Path: path, JSON: body, Header: map[string]string{"Authorization": "Bearer " + c.c.APIKey()}}
	_, err := c.c.Call(ctx, r, out)
	return err
}

// Session is a created session.
type Session struct {
	ID         string `json:"chat_session_id"`
	Token      string `json:"jwt"`
	ConnectURL string `json:"connect_url"`
	Sandbox    string `json:"vm_id"`
}

// Create creates a session with secret bundles.
func (c *Client) Create(ctx context.Context, bundles ...string) (s Session, err error) {
	body := map[string]any{"template": "standard", "llm": map[string]string{"vendor": "anthropic"}, "user_id": "bench", "ttl_seconds": 1800}
	if len(bundles) > 0 {
		body["secrets"] = bundles
	}
	return s, c.Do(ctx, http.MethodPost, "/v1/sessions", body, &s)
}

// Conn is a connection to a session. One goroutine may read while another writes.
type Conn struct{ ws *websocket.Conn }

// Dial connects to a session. Its connection is the session's only one.
func (c *Client) Dial(ctx context.Context, s *Session) (*Conn, error) {
	u := s.ConnectURL
	if u == "" {
		u = "ws" + strings.TrimPrefix(c.c.Base(), "http") + "/v1/sessions/" + s.ID + "/ws"
	}
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, u, http.Header{"Authorization": {"Bearer " + s.Token}})
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	return &Conn{ws}, nil
}

// Close closes the connection.
func (c *Conn) Close() { c.ws.Close() }

// Send sends a text message.
func (c *Conn) Send(text string) error { return c.ws.WriteMessage(websocket.TextMessage, []byte(text)) }

// Read returns the next message.
func (c *Conn) Read() (string, error) {
	_, b, err := c.ws.ReadMessage()
	return string(b), err
}
