package websocket

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/services/gateway/internal/httpconn"
)

// wire is the connection as the second app and the library see it. It first yields an upgrade
// request of this package's own, then what the client sends. After the upgrade each write is
// one or more whole frames.
type wire struct {
	net.Conn // raw, for the addresses
	raw      *httpconn.RawConn
	request  []byte                // rest of the upgrade request
	headers  [][2]string           // headers of the response
	run      func(*websocket.Conn) // handles the connection once it is upgraded

	onFailure func(error) // called when a write fails, before the connection is closed

	fragments    fragments
	maxFragments int
	readErr      error // returned by Read from now on

	// reads is incremented before and after each read of raw, so that it is odd during a read,
	// and unchanged if one read lasts.
	reads atomic.Uint64

	mu       sync.Mutex             // held during a write
	upgraded bool                   // guarded by mu: writes are frames
	failed   error                  // guarded by mu: error of the last write, or errClosed after a close frame
	code     atomic.Uint32          // code of the close frame that was sent + 1; 0: none was sent
	pong     atomic.Pointer[[]byte] // payload of a pong to be sent
	ping     atomic.Bool            // a ping is to be sent
}

var (
	errClosed    = errors.New("the connection is closed")
	errFragments = errors.New("a message has too many fragments")
)

// upgrade makes all further writes frames.
func (w *wire) upgrade(onFailure func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.upgraded, w.onFailure = true, onFailure
}

// Read implements [net.Conn].
func (w *wire) Read(p []byte) (int, error) {
	if len(w.request) > 0 {
		n := copy(p, w.request)
		if w.request = w.request[n:]; len(w.request) == 0 {
			w.request = nil
		}
		return n, nil
	}
	if w.readErr != nil {
		return 0, w.readErr
	}
	w.reads.Add(1)
	n, err := w.raw.Read(p)
	w.reads.Add(1)
	if ok := w.fragments.scan(p[:n], w.maxFragments); ok < n {
		n, err = ok, errFragments
	}
	if w.readErr = err; n > 0 {
		err = nil
	}
	return n, err
}

// Write implements [net.Conn], for the response of the upgrade and for close frames of the
// library.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.unlock()
	if !w.upgraded {
		return w.raw.Write(p)
	}
	return len(p), w.writeLocked(p)
}

// writeLocked sends frames; the caller holds mu.
func (w *wire) writeLocked(frames []byte) error {
	if w.failed != nil {
		return w.failed
	}
	if _, err := w.raw.Write(frames); err != nil {
		w.failed = err
		w.onFailure(err)
		w.raw.Close() // a frame may be incomplete
		return err
	}
	if len(frames) >= smallHead && frames[0] == final|opClose { // close frames are sent alone
		w.closed(frames)
	}
	return nil
}

// closed records that a close frame was sent. Nothing can be sent after it.
func (w *wire) closed(frame []byte) {
	code := uint32(0)
	if len(frame) >= smallHead+2 {
		code = uint32(frame[smallHead])<<8 | uint32(frame[smallHead+1])
	}
	w.failed = errClosed
	w.code.Store(code + 1)
}

// send sends whole frames. It reports errClosed after a close frame.
func (w *wire) send(frames []byte) error {
	w.mu.Lock()
	defer w.unlock()
	return w.writeLocked(frames)
}

// unlock sends the control frames that were posted while mu was held, and releases it.
func (w *wire) unlock() {
	for {
		w.flush()
		w.mu.Unlock()
		if w.pong.Load() == nil && !w.ping.Load() || !w.mu.TryLock() {
			return // nothing was posted after flush, or the goroutine that has the lock sends it
		}
	}
}

// flush sends the posted control frames.
func (w *wire) flush() {
	var frames []byte
	if p := w.pong.Swap(nil); p != nil {
		frames = appendControl(frames, opPong, *p)
	}
	if w.ping.Swap(false) {
		frames = appendControl(frames, opPing, nil)
	}
	if len(frames) > 0 {
		w.writeLocked(frames) //nolint:errcheck // the connection is closed
	}
}

// post sends the posted control frames unless another goroutine holds the lock, which then
// sends them.
func (w *wire) post() {
	if w.mu.TryLock() {
		w.unlock()
	}
}

// postPong sends a pong. An earlier one that was not sent is not needed any more (RFC 6455,
// section 5.5.3).
func (w *wire) postPong(payload string) {
	p := []byte(payload)
	w.pong.Store(&p)
	w.post()
}

func (w *wire) postPing() {
	w.ping.Store(true)
	w.post()
}

// Close implements [net.Conn].
func (w *wire) Close() error { return w.raw.Close() }

// SetDeadline does nothing: raw sets the deadlines of writes, and Conn those of reads.
func (w *wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing, see [wire.SetDeadline].
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, see [wire.SetDeadline].
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
