package codex

import (
	"sync"

	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// transport carries messages in WebSocket messages, text or binary.
type transport struct {
	conn *websocket.Conn
	last websocket.Message
	buf  []byte
}

// maxBuffer is the capacity of the largest buffer that a connection keeps. It is small, because
// most connections are idle.
const maxBuffer = 4 << 10

// Read implements [session.Transport].
func (t *transport) Read() ([]byte, error) {
	t.last.Release()
	var err error
	t.last, err = t.conn.Read()
	return t.last.Data, err
}

// Write implements [session.Transport].
func (t *transport) Write(messages [][]byte) error {
	t.buf = append(t.buf[:0], make([]byte, stream.Headroom)...)
	for _, m := range messages {
		t.buf = websocket.AppendMessage(t.buf, websocket.Text, m)
	}
	err := t.conn.Flush(t.buf)
	if cap(t.buf) > maxBuffer {
		t.buf = nil
	}
	return err
}

// Close implements [session.Transport].
func (t *transport) Close() { t.conn.Close(websocket.GoingAway, "") }

// budget is the memory for large answers of one connection.
type budget struct {
	mu   sync.Mutex
	b    *stream.Budget
	held int
}

// Reserve implements [session.Budget].
func (b *budget) Reserve(n int) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.b.Grow(b.held + n) {
		return nil, stream.ErrOverBudget
	}
	b.held += n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held -= n
		b.b.Shrink(b.held)
	}, nil
}
