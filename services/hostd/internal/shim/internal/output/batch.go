package output

import (
	"net"

	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const (
	sendTurn   = 128 << 10 // bytes of one record before it is the next one's turn
	sendBatch  = 512 << 10 // bytes of one write
	inlineData = 2 << 10   // shorter output is copied behind its head: cheaper than another vector
)

// Batch is what one write sends. The zero value is empty.
type Batch struct {
	bufs [][]byte
	vec  net.Buffers
	text []byte // heads and short frames
	from int    // start of the text that is not in bufs yet
	size int
}

// WriteTo sends the batch, unless it is empty, in one write, even if the connection has no
// writev. The batch must be collected again before the next one.
func (t *Batch) WriteTo(conn net.Conn) error {
	t.flushText()
	if t.vec = t.bufs; len(t.vec) == 0 {
		return nil
	}
	if w, ok := conn.(interface{ WriteBuffers(bufs [][]byte) error }); ok {
		return w.WriteBuffers(t.vec)
	}
	_, err := t.vec.WriteTo(conn)
	return err
}

// Append adds the frames that f appends.
func (t *Batch) Append(f func([]byte) []byte) { t.text = f(t.text) }

func (t *Batch) reset() {
	if cap(t.text) > 64<<10 {
		t.text = nil
	}
	clear(t.bufs)
	t.bufs, t.text, t.from, t.size = t.bufs[:0], t.text[:0], 0, 0
}

// flushText moves the text so far into bufs; it stays valid if text is reallocated later.
func (t *Batch) flushText() {
	if len(t.text) > t.from {
		t.bufs = append(t.bufs, t.text[t.from:len(t.text):len(t.text)])
		t.from = len(t.text)
	}
}

func (t *Batch) add(token string, e *entry) {
	t.text = e.appendHead(t.text, token)
	if len(e.data) < inlineData {
		t.text = append(t.text, e.data...)
		return
	}
	t.flushText()
	t.bufs = append(t.bufs, e.data)
}

// Collect replaces t by what to send next: the frames that control appends, then events. It
// reports whether more events can be sent at once. An event that was recorded after a control
// frame was queued follows that frame, since control is called with the buffer locked.
func (b *Buffer) Collect(t *Batch, control func([]byte) []byte) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.reset()
	t.text = control(t.text)
	t.size = len(t.text)
	for n := len(b.ready); n > 0 && len(b.ready) > 0 && t.size < sendBatch; n-- {
		r := b.ready[0]
		b.ready = b.ready[1:]
		r.queued = false
		r.collect(t)
		if b.maySend(r) {
			b.queue(r)
		}
	}
	if len(b.ready) == 0 {
		b.ready = nil
	}
	return b.ready != nil
}

// collect adds r's events to t, up to sendTurn bytes.
func (r *Record) collect(t *Batch) {
	b := r.b
	for turn := 0; turn < sendTurn && r.spool.sendable() && b.flight < wire.WindowConn; {
		if r.spool.nextOnDisk() && !r.loadFromDisk() {
			return
		}
		e := r.spool.send()
		n := e.flight()
		b.flight += n
		turn += n
		t.size += n
		t.add(r.token, e)
	}
}
