package store

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/events/internal/streams"
)

// A server whose machine or network is down sends nothing, not even a reset, and neither
// does one that hangs. A lease expires after 10 s, so the failure must be detected much
// sooner.
const (
	// linkSilence is how long a server may send nothing. It answers a ping every linkPing.
	linkSilence = 3 * time.Second
	linkPing    = time.Second
	// linkPings is more than are ever outstanding on a connection that linkSilence did not
	// end: an answer may wait behind a reader's backlog, which is not silence.
	linkPings = 30

	// inProcessPing is for a server in this process, which has no network that can fail.
	inProcessPing = 10 * time.Second

	dialTimeout = 2 * time.Second
)

// links dials NATS servers and closes the connection to one that does not respond.
type links struct {
	mu   sync.Mutex
	last *link

	// A server that is cut off from the others of its cluster answers pings and stores nothing.
	unanswered map[string]unanswered // by requestKey
	wait       time.Duration         // minimum time between the last switch and the next
	switched   time.Time
}

// link is a connection that is closed when its server is silent.
type link struct{ net.Conn }

var _ nats.CustomDialer = (*links)(nil)

// Dial connects to a server. nats.go uses it for each connection.
func (ls *links) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	l := &link{conn}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.last = l
	for key, u := range ls.unanswered {
		ls.unanswered[key] = unanswered{last: u.last} // the new server has had no request yet
	}
	return l, nil
}

// Read reads what the server sends. After linkSilence without data it closes the
// connection, which also ends a write that waits for the server's machine.
func (l *link) Read(b []byte) (int, error) {
	if err := l.SetReadDeadline(time.Now().Add(linkSilence)); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.Close()
	}
	return n, err
}

// unanswered records that requests of one kind to one stream have no response. Each kind and
// stream counts alone: a server that is cut off answers reads of the streams that it led
// until it notices, several seconds later.
type unanswered struct {
	since time.Time // start of the first request that failed after the last response; zero: none on this connection
	last  time.Time // end of the last one
}

const (
	// switchAfter is when two attempts, one after the other, have timed out.
	switchAfter = 2*attempt - 50*time.Millisecond
	// switchWait is the pause after a first switch, doubled each time up to switchWaits: if
	// the cluster has no leader, no server is better than another.
	switchWait  = 2 * attempt
	switchWaits = time.Minute
)

// requestKey returns what the requests with a subject are counted as: reads of a stream by
// their subject, appends by their stream.
func requestKey(subject string) string {
	if strings.HasPrefix(subject, "$JS.") {
		return subject
	}
	return streams.Of(subject)
}

// answer records that the cluster stored a message or answered a read.
func (ls *links) answer(subject string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.unanswered) == 0 {
		return
	}
	delete(ls.unanswered, requestKey(subject))
	if len(ls.unanswered) == 0 {
		ls.wait = 0
	}
}

// timeout records a request that started at began and had no response from a leader. Once
// this has lasted for two attempts it closes the connection; nats.go then connects to the
// next server.
func (ls *links) timeout(subject string, began, now time.Time) (switched bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	key := requestKey(subject)
	ls.forget(now)
	u, ok := ls.unanswered[key]
	if !ok || u.since.IsZero() {
		u.since = began
	}
	u.last = now
	if ls.unanswered == nil {
		ls.unanswered = make(map[string]unanswered)
	}
	ls.unanswered[key] = u
	if ls.last == nil || now.Sub(u.since) < switchAfter || now.Sub(ls.switched) < ls.wait {
		return false
	}
	ls.wait = min(max(2*ls.wait, switchWait), switchWaits)
	ls.switched = now
	ls.last.Close()
	ls.last = nil
	return true
}

// forget drops failures of requests that were not repeated: they say nothing about now.
func (ls *links) forget(now time.Time) {
	for key, u := range ls.unanswered {
		if now.Sub(u.last) > switchWaits {
			delete(ls.unanswered, key)
		}
	}
}
