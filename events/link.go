package events

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A server whose machine or network is gone sends nothing, not even a reset, and neither does
// one that hangs. A lease ends after 10 s, so that it must be noticed much sooner.
const (
	// linkSilence is how long a server may send nothing; it answers a ping every linkPing.
	linkSilence = 3 * time.Second
	linkPing    = time.Second
	// linkPings is more than are ever outstanding on a connection that linkSilence did not end:
	// an answer may wait behind a reader's backlog, which is no silence.
	linkPings = 30

	// inProcessPing is for a server in this process, which has no network to fail.
	inProcessPing = 10 * time.Second

	dialTimeout = 2 * time.Second
)

// links dials NATS servers, and ends the connection to one that does not do its work.
type links struct {
	mu   sync.Mutex
	last *link

	// A server that is cut off from the others of its cluster answers pings and stores nothing.
	appends, reads unanswered
	wait           time.Duration // after the next switch until the one after that
	switched       time.Time
}

// link is a connection that ends when its server is silent.
type link struct{ net.Conn }

var _ nats.CustomDialer = (*links)(nil)

// Dial connects to a server. nats.go uses it for each connection.
func (ls *links) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, address) //nolint:noctx // nats.go hands in no context
	if err != nil {
		return nil, err
	}
	l := &link{conn}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.last = l
	ls.appends, ls.reads = unanswered{}, unanswered{}
	return l, nil
}

// Read reads what the server sends. After linkSilence of nothing it closes the connection,
// which also ends a write that waits for the server's machine.
func (l *link) Read(b []byte) (int, error) {
	if err := l.SetReadDeadline(time.Now().Add(linkSilence)); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.Close() //nolint:errcheck // the read failed
	}
	return n, err
}

// unanswered is since when requests of one kind have had no answer: the begin of the first
// that timed out after the last answer. Zero: the last one was answered.
type unanswered struct{ since time.Time }

const (
	// switchAfter is when two attempts, one after the other, have timed out.
	switchAfter = 2*attempt - 50*time.Millisecond
	// switchWait is the pause after a first switch, doubled each time up to switchWaits: where
	// the cluster has no leader, no server is better than another.
	switchWait  = 2 * attempt
	switchWaits = time.Minute
)

// answer notes that the cluster stored a message, or answered a read.
func (ls *links) answer(u *unanswered) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	u.since = time.Time{}
	if u == &ls.appends {
		ls.wait = 0
	}
}

// timeout notes an attempt that began then and had no answer. After two, one after the other,
// it ends the connection; nats.go then connects to the next server.
func (ls *links) timeout(u *unanswered, began, now time.Time) (switched bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if u.since.IsZero() {
		u.since = began
	}
	if ls.last == nil || now.Sub(u.since) < switchAfter || now.Sub(ls.switched) < ls.wait {
		return false
	}
	ls.wait = min(max(2*ls.wait, switchWait), switchWaits)
	ls.switched = now
	ls.last.Close() //nolint:errcheck // nats.go closes it again
	ls.last = nil
	return true
}
