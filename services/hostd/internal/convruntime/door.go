package convruntime

import (
	"bufio"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"time"
)

const (
	maxHead  = 8 << 10         // bytes of a request
	answerIn = 5 * time.Second // time of a connection
	maxPeers = 16              // connections at a time; others wait
)

// door answers HTTP requests on the sandbox's loopback: 401 without the token of the current
// client, and its state with it. An HTTP server would double the size of the shim's binary, of
// which every sandbox has a process.
type door struct {
	mu        sync.Mutex
	id, token string // of the current client; empty: none
}

// admit makes a client the current one.
func (d *door) admit(id, token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.id, d.token = id, token
}

// dismiss forgets a client, and reports whether it was the current one.
func (d *door) dismiss(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id != id {
		return false
	}
	d.id, d.token = "", ""
	return true
}

// knows reports whether a token is that of the current client.
func (d *door) knows(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) == 1
}

// open listens on the port, or on any if another program has it, and returns which one; 0 if there
// is none. It answers until stop is called.
func (d *door) open(port int, running func() int) (got int, stop func()) {
	var ln *net.TCPListener
	var err error
	for _, p := range []int{port, 0} {
		if ln, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p}); err == nil {
			break
		}
	}
	if err != nil {
		return 0, func() {}
	}
	var all sync.WaitGroup
	for range maxPeers {
		all.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				d.answer(c, running())
			}
		})
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); ok {
		got = addr.Port
	}
	return got, func() {
		ln.Close()
		all.Wait()
	}
}

// answer serves the one request of a connection.
func (d *door) answer(c net.Conn, running int) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(answerIn))
	r := textproto.NewReader(bufio.NewReader(io.LimitReader(c, maxHead)))
	if _, err := r.ReadLine(); err != nil {
		return
	}
	head, err := r.ReadMIMEHeader()
	if err != nil {
		return
	}
	status, body := "401 Unauthorized", any(map[string]string{"error": "unauthorized", "message": "the internal token is missing or invalid"})
	if token, ok := strings.CutPrefix(head.Get("Authorization"), "Bearer "); ok && d.knows(token) {
		status, body = "200 OK", map[string]any{"status": "running", "commands": running}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s", status, len(b), b)
}
