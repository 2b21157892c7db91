package codexclient

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"

	"github.com/fasthttp/websocket"
)

// socket is a connection to a gateway.
type socket struct {
	ws  *websocket.Conn
	buf bytes.Buffer
}

// buffer is the size of a WebSocket connection's buffers at the client.
const buffer = 4 << 10

// Dial connects to a sandbox at a gateway, without a session yet.
func Dial(ctx context.Context, gateway, key, sandbox string) (*Conn, error) {
	u, err := url.Parse(gateway)
	if err != nil {
		return nil, err
	}
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	u.Path = "/codex/" + sandbox
	d := websocket.Dialer{ReadBufferSize: buffer, WriteBufferSize: buffer}
	ws, resp, err := d.DialContext(ctx, u.String(), http.Header{"Authorization": {"Bearer " + key}})
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return &Conn{t: &socket{ws: ws}}, nil
}

func (s *socket) read() ([]byte, error) {
	_, r, err := s.ws.NextReader()
	if err != nil {
		return nil, err
	}
	s.buf.Reset()
	_, err = s.buf.ReadFrom(r)
	return s.buf.Bytes(), err
}

func (s *socket) write(m []byte) error { return s.ws.WriteMessage(websocket.TextMessage, m) }
func (s *socket) close()               { s.ws.Close() }

// pipe is an exec-server that bench has started.
type pipe struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	buf []byte
}

// Spawn starts an exec-server that serves its standard input and output. Its errors go to stderr.
func Spawn(ctx context.Context, stderr io.Writer, binary string, args ...string) (*Conn, error) {
	p := &pipe{cmd: exec.CommandContext(ctx, binary, append([]string{"exec-server"}, args...)...)}
	p.cmd.Stderr = stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 64<<10)
	return &Conn{t: p}, p.cmd.Start()
}

func (p *pipe) read() ([]byte, error) {
	p.buf = p.buf[:0]
	for {
		part, err := p.out.ReadSlice('\n')
		p.buf = append(p.buf, part...)
		if err != bufio.ErrBufferFull { //nolint:errorlint // ReadSlice returns it as it is
			return p.buf, err
		}
	}
}

func (p *pipe) write(m []byte) error {
	_, err := p.in.Write(append(m, '\n'))
	return err
}

// close ends the exec-server, which removes what it made.
func (p *pipe) close() {
	p.in.Close()
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait() // it was told to end
}
