package shim

import (
	"context"
	"io"

	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/services/hostd/internal/shim/internal/network"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

const streamTurn = 32 << 10 // bytes of streams in one write, besides one turn of the processes

// newStreams returns the session's end of the mux: hostd opens streams to ports of the
// sandbox, the shim opens streams to the proxy.
func (c *session) newStreams() *mux.Mux {
	return mux.New(mux.Config{
		MaxStreams: wire.MaxStreams,
		MaxOpen:    wire.MaxStreams,
		Window:     wire.WindowStream,
		Wake: func() {
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			c.wake.Signal()
		},
		Accept: func(s *mux.Stream) {
			if s.Target() == wire.TargetFiles {
				go c.s.files.Serve(s)
				return
			}
			go network.ToPort(s)
		},
	})
}

// OpenStream opens a stream to hostd, if it is connected.
func (s *Shim) OpenStream(ctx context.Context, target string) (*mux.Stream, error) {
	s.mu.Lock()
	c := s.session
	s.mu.Unlock()
	if c == nil {
		return nil, io.ErrClosedPipe
	}
	return c.streams.Open(ctx, target)
}
