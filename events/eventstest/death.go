package eventstest

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// death is the publish before which a client dies.
type death struct {
	counts func(subject string) bool
	over   chan struct{} // closed when the client is dead

	mu   sync.Mutex
	left int // publishes until then
}

// reached counts a publish, and reports whether the client dies instead of it.
func (d *death) reached(subject string) bool {
	if !d.counts(subject) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left--; d.left == 0 {
		close(d.over)
	}
	return d.left <= 0
}

// DieBefore cuts the client off for ever instead of its n-th publish from now whose subject counts, as if
// the client was killed between two appends. The channel is closed when that happens.
func (p *Proxy) DieBefore(n int, counts func(subject string) bool) <-chan struct{} {
	d := &death{counts: counts, over: make(chan struct{}), left: n}
	p.death.Store(d)
	return d.over
}

// Kill cuts the client off for ever. The proxy keeps its port: the client goes on trying to connect,
// and would find the server of another test there.
func (p *Proxy) Kill() {
	p.Freeze()
	p.Cut()
}

// publishes forwards what a client sends, until it publishes the message before which it dies.
type publishes struct {
	to    net.Conn
	proxy *Proxy
	line  []byte // the line that is being read
	skip  int    // bytes of a message that follow
}

// Write implements [io.Writer].
func (w *publishes) Write(b []byte) (int, error) {
	for at := 0; at < len(b); {
		if w.skip > 0 {
			n := min(w.skip, len(b)-at)
			w.skip, at = w.skip-n, at+n
			continue
		}
		end := bytes.IndexByte(b[at:], '\n')
		if end < 0 {
			w.line = append(w.line, b[at:]...)
			break
		}
		line := string(append(w.line, b[at:at+end]...))
		w.line = w.line[:0]
		subject, size := published(line)
		if d := w.proxy.death.Load(); size > 0 && d != nil && d.reached(subject) {
			n, err := w.to.Write(b[:at])
			w.proxy.Kill()
			if err == nil {
				err = io.ErrClosedPipe
			}
			return n, err
		}
		w.skip, at = size, at+end+1
	}
	return w.to.Write(b)
}

// Close implements [io.Closer].
func (w *publishes) Close() error { return w.to.Close() }

// published returns the subject of a line that publishes a message, and the number of bytes that follow.
// The size is 0 for any other line.
func published(line string) (subject string, size int) {
	fields := strings.Fields(line)
	if len(fields) < 3 || fields[0] != "PUB" && fields[0] != "HPUB" {
		return "", 0
	}
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return "", 0
	}
	return fields[1], n + len("\r\n")
}
