package session

import (
	"sync"

	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
)

// flushAt is the size at which notifications are sent before more are encoded.
const flushAt = 256 << 10

// out writes messages, one goroutine at a time. Everything that is encoded is encoded under
// its lock, so that a connection has one buffer however many processes it has.
type out struct {
	t      Transport
	failed func(error) // called once with the first error

	mu  sync.Mutex
	err error
}

// frames are messages in one buffer.
type frames struct {
	buf  []byte
	ends []int
	list [][]byte
}

// pool holds the buffers of all connections: an idle connection has none.
var pool = sync.Pool{New: func() any { return new(frames) }}

// maxPooled is the capacity of the largest buffer that returns to the pool.
const maxPooled = 1 << 20

func acquire() *frames {
	return pool.Get().(*frames) //nolint:errcheck,forcetypeassert // only frames are put
}

func (f *frames) release() {
	clear(f.list)
	f.buf, f.ends, f.list = f.buf[:0], f.ends[:0], f.list[:0]
	if cap(f.buf) <= maxPooled {
		pool.Put(f)
	}
}

// end ends the message that was appended to f.buf.
func (f *frames) end() { f.ends = append(f.ends, len(f.buf)) }

// messages returns the messages.
func (f *frames) messages() [][]byte {
	from := 0
	for _, end := range f.ends {
		f.list = append(f.list, f.buf[from:end:end])
		from = end
	}
	return f.list
}

// send writes one message.
func (o *out) send(message []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write([][]byte{message})
}

func (o *out) write(messages [][]byte) error {
	if o.err == nil {
		if o.err = o.t.Write(messages); o.err != nil {
			o.failed(o.err)
		}
	}
	return o.err
}

// notify writes the notifications of a process and returns how many of the items it wrote:
// all, or as many as fit into one write.
func (o *out) notify(id []byte, items []item) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := acquire()
	defer f.release()
	n := 0
	for n < len(items) && len(f.buf) < flushAt {
		switch i := &items[n]; i.kind {
		case itemOutput:
			f.buf = protocol.AppendOutput(f.buf, id, i.seq, i.stream, i.data)
		case itemExited:
			f.buf = protocol.AppendExited(f.buf, id, i.seq, exitCode(i.exit))
		case itemClosed:
			f.buf = protocol.AppendClosed(f.buf, id, i.seq)
		}
		f.end()
		n++
	}
	return n, o.write(f.messages())
}
