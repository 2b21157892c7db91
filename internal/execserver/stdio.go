package execserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fasthttp/websocket"
)

// Endpoint is a gateway's endpoint for sessions in one sandbox.
type Endpoint struct {
	Gateway string // URL with the scheme http
	Path    string
	Query   string
	Key     string // API key
}

// maxMessage is the maximum size of a message in bytes, as the gateway has it.
const maxMessage = 16 << 20

// Pipe serves one client whose messages are lines, until in ends or the gateway ends the
// connection. It leaves a blocked read of in behind.
func Pipe(ctx context.Context, e Endpoint, in io.Reader, out io.Writer) error {
	url := "ws" + e.Gateway[len("http"):] + e.Path + "?" + e.Query
	conn, resp, err := websocket.DefaultDialer.DialContext(ctx, url, http.Header{"Authorization": {"Bearer " + e.Key}})
	if resp != nil {
		resp.Body.Close()
	}
	if err != nil {
		return fmt.Errorf("connect to the gateway: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	ended := make(chan error, 2)
	go func() { ended <- sendLines(conn, in) }()
	go func() { ended <- receiveLines(conn, out) }()
	err = <-ended
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// sendLines sends each line as a message. It returns io.EOF at the end of in.
func sendLines(conn *websocket.Conn, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage+1)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := conn.WriteMessage(websocket.TextMessage, lines.Bytes()); err != nil {
			return fmt.Errorf("send message: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	return io.EOF
}

// receiveLines writes each message as a line. It returns io.EOF when the gateway closes the
// connection.
func receiveLines(conn *websocket.Conn, out io.Writer) error {
	for {
		_, message, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
			return io.EOF
		}
		if err != nil {
			return fmt.Errorf("receive message: %w", err)
		}
		if _, err := out.Write(append(message, '\n')); err != nil {
			return fmt.Errorf("write message: %w", err)
		}
	}
}
