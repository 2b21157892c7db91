package backendclient

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fasthttp/websocket"
)

// Conn is a WebSocket connection. One goroutine may read while another writes.
type Conn struct {
	ws  *websocket.Conn
	buf bytes.Buffer
}

// Close closes the connection.
func (c *Conn) Close() { c.ws.Close() }

// Refused reports whether an error of Read is the close code of a service that does not listen.
func Refused(err error) bool { return websocket.IsCloseError(err, websocket.CloseTryAgainLater) }

// Read returns the next message, which is valid until the next call.
func (c *Conn) Read() ([]byte, error) {
	_, r, err := c.ws.NextReader()
	if err != nil {
		return nil, err
	}
	c.buf.Reset()
	_, err = c.buf.ReadFrom(r)
	return c.buf.Bytes(), err
}

// Discard reads the next message and returns its length.
func (c *Conn) Discard() (int64, error) {
	_, r, err := c.ws.NextReader()
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, r)
}

// Send sends a binary message.
func (c *Conn) Send(data []byte) error { return c.ws.WriteMessage(websocket.BinaryMessage, data) }

// SendJSON sends a text message.
func (c *Conn) SendJSON(v any) error { return c.ws.WriteJSON(v) }

// Type sends input to a terminal.
func (c *Conn) Type(data []byte) error {
	return c.SendJSON(map[string]string{"type": "stdin", "chars": base64.StdEncoding.EncodeToString(data)})
}

// outPrefix begins a message with output.
var outPrefix = []byte(`{"type":"out","data":"`)

// Output returns the next output of a terminal, which is valid until the next call.
func (c *Conn) Output() ([]byte, error) {
	raw, err := c.Read()
	if err != nil {
		return nil, err
	}
	data, ok := bytes.CutPrefix(bytes.TrimSpace(raw), outPrefix)
	if !ok {
		var m struct{ Type, Data string }
		if err := json.Unmarshal(raw, &m); err != nil || m.Type != "out" {
			return nil, fmt.Errorf("the terminal sent %.200s", raw)
		}
		return base64.StdEncoding.DecodeString(m.Data)
	}
	data = bytes.TrimSuffix(data, []byte(`"}`))
	n, err := base64.StdEncoding.Decode(data, data)
	return data[:n], err
}
