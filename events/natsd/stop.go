package natsd

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// StopTimeout bounds [Server.Stop] and [Server.LameDuck]. A server that takes longer is
	// abandoned, because its process exits. Acknowledged messages are in the files.
	StopTimeout = 15 * time.Second

	// After a lame duck has handed over its leaders, clients have lameGrace until the first
	// connection is closed, and lameClose until the last one is. The server's defaults are
	// 10 s and 2 min.
	lameGrace = time.Second
	lameClose = 3 * time.Second
)

// Stop stops the server and returns when it has stopped, or after StopTimeout. Acknowledged
// messages are on disk. If the server did not stop in time, Stop logs that, and this
// process must not open its files again.
func (s *Server) Stop() { s.end((*server.Server).Shutdown) }

// LameDuck is Stop for a rolling restart: before the server stops, leaders are handed over
// and clients notified.
func (s *Server) LameDuck() { s.end((*server.Server).LameDuckShutdown) }

func (s *Server) end(how func(*server.Server)) {
	within, cancel := context.WithTimeout(context.Background(), s.stopTimeout)
	defer cancel()
	s.stop()
	select {
	case <-s.repairDone: // otherwise repair is in a shutdown of its own, which hangs
	case <-within.Done():
	}
	if err := s.shutdown(within, how); err != nil {
		s.logger().Errorf("stop: %v", err)
	}
}

// shutdown stops the running server and waits until it has stopped, or until ctx ends.
//
// nats-server waits without a limit for its own goroutines, such as the monitor of a stream
// that catches up (stopMonitoring).
func (s *Server) shutdown(ctx context.Context, how func(*server.Server)) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ns := s.ns.Load()
		how(ns)
		ns.WaitForShutdown()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the server did not stop within %v", s.stopTimeout)
	}
}
