package counts

import (
	"bytes"
	"net"
	"strconv"
	"sync"

	"github.com/millrace/millrace/events/eventstest"
)

// messages counts messages by the first token of their subject.
type messages struct {
	mu sync.Mutex
	of map[string]int
}

func (m *messages) take(subject []byte) {
	subject = bytes.TrimPrefix(subject, []byte("live.")) // as they are republished
	first, _, _ := bytes.Cut(subject, []byte("."))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[string(first)]++
}

// count returns the number of messages so far.
func (m *messages) count(first string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[first]
}

// countingServer is a server whose messages are counted.
type countingServer struct {
	*eventstest.Server
	sent, received *messages // as seen from the services
}

func count(s *eventstest.Server) countingServer {
	return countingServer{s, &messages{of: make(map[string]int)}, &messages{of: make(map[string]int)}}
}

func (s countingServer) InProcessConn() (net.Conn, error) {
	c, err := s.Server.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: c, in: protocol{message: s.received.take}, out: protocol{message: s.sent.take}}, nil
}

// countingConn follows the protocol of NATS in both directions.
type countingConn struct {
	net.Conn
	in, out protocol
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.take(b[:n])
	return n, err
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.out.take(b)
	return c.Conn.Write(b)
}

// protocol finds the messages in one direction of a connection.
type protocol struct {
	message func(subject []byte)
	line    []byte // the beginning of a control line
	skip    int    // bytes of the payload to come
}

func (p *protocol) take(b []byte) {
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(p.skip, len(b))
			p.skip, b = p.skip-n, b[n:]
			continue
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			p.line = append(p.line, b...)
			return
		}
		p.control(append(p.line, b[:i]...))
		p.line, b = p.line[:0], b[i+1:]
	}
}

// control takes a control line. That of a message ends with the size of what follows.
func (p *protocol) control(line []byte) {
	f := bytes.Fields(line)
	if len(f) < 3 {
		return
	}
	switch string(bytes.TrimPrefix(f[0], []byte("H"))) {
	case "PUB", "MSG":
		p.message(f[1])
		size, _ := strconv.Atoi(string(f[len(f)-1]))
		p.skip = size + len("\r\n")
	}
}
