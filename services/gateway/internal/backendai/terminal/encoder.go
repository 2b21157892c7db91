package terminal

import (
	"time"

	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/internal/vtfilter"
	"github.com/millrace/millrace/services/gateway/internal/websocket"
)

// Encoder encodes the live output of a terminal's process as WebSocket messages.
type Encoder struct {
	filter *vtfilter.Filter
	buf    []byte
	exit   *process.Exit
	wrote  func()
}

// NewEncoder returns an encoder of what follows a history. It calls wrote for each output.
func NewEncoder(f *vtfilter.Filter, wrote func()) *Encoder { return &Encoder{filter: f, wrote: wrote} }

// Exit returns how the process ended; nil if it has not.
func (n *Encoder) Exit() *process.Exit { return n.exit }

// AppendEvent implements stream.Encoder.
func (n *Encoder) AppendEvent(dst []byte, e process.Event) ([]byte, error) {
	switch b := e.Body.(type) {
	case process.Wrote:
		n.wrote()
		if n.buf = n.filter.Live(n.buf[:0], b.Data); len(n.buf) > 0 {
			at := len(dst)
			dst = websocket.EndMessage(AppendOut(websocket.BeginMessage(dst), n.buf), at, websocket.Text)
		}
	case process.Finished:
		n.exit = &b.Exit
	default:
		// Clients see output only.
	}
	return dst, nil
}

// AppendIdle implements stream.Encoder: the connection has its own keepalive.
func (*Encoder) AppendIdle(dst []byte, _ time.Duration) ([]byte, time.Duration) { return dst, 0 }

// AppendEnd implements stream.Encoder: another process follows on the same connection.
func (*Encoder) AppendEnd(dst []byte, _ error) []byte { return dst }
