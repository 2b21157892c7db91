package codex

import (
	"slices"
	"sync"

	"github.com/millrace/millrace/services/gateway/internal/stream"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// transport carries messages in WebSocket messages, text or binary.
type transport struct {
	conn *websocket.Conn
	last websocket.Message
}

// buffers are those of all connections: most of them are idle, and those that are not send
// pieces of the same size.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer is the capacity of the largest buffer that is kept.
const maxBuffer = 1 << 20

// Read implements [session.Transport].
func (t *transport) Read() ([]byte, error) {
	t.last.Release()
	var err error
	t.last, err = t.conn.Read()
	return t.last.Data, err
}

// Write implements [session.Transport].
func (t *transport) Write(messages [][]byte) error {
	size := stream.Headroom
	for _, m := range messages {
		size += websocket.MessageSize(len(m))
	}
	p := buffers.Get().(*[]byte) //nolint:errcheck,forcetypeassert // only they are put
	buf := slices.Grow((*p)[:0], size)[:stream.Headroom]
	for _, m := range messages {
		buf = websocket.AppendMessage(buf, websocket.Text, m)
	}
	err := t.conn.Flush(buf)
	if cap(buf) <= maxBuffer {
		*p = buf
		buffers.Put(p)
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
