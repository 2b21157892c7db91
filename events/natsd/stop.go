package natsd

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// StopTimeout bounds [Server.Stop] and [Server.LameDuck]. A server that takes longer is
	// left behind: the process that holds it exits. What was acknowledged is in the files.
	StopTimeout = 15 * time.Second

	// Once a lame duck has handed over its leaders, clients have lameGrace before the first
	// connection is closed, and lameClose until the last one is. The server's own defaults
	// are 10 s and 2 min.
	lameGrace = time.Second
	lameClose = 3 * time.Second
)

// Stop ends the server and returns when it has, StopTimeout at most. What was acknowledged
// is on the disk. If the server did not stop in time, that is logged, and its files must not
// be opened again by this process.
func (s *Server) Stop() { s.end((*server.Server).Shutdown) }

// LameDuck is Stop as a rolling restart needs it: leaders are handed over, and clients told,
// before the server stops.
func (s *Server) LameDuck() { s.end((*server.Server).LameDuckShutdown) }

func (s *Server) end(how func(*server.Server)) {
	within, cancel := context.WithTimeout(context.Background(), s.stopTimeout)
	defer cancel()
	s.stop()
	select {
	case <-s.over: // else mend is in a shut of its own, which hangs
	case <-within.Done():
	}
	if err := s.shut(within, how); err != nil {
		s.logger().Errorf("stop: %v", err)
	}
}

// shut stops the running server and waits until it has stopped, or until ctx ends.
//
// nats-server waits without a bound for goroutines of its own, such as the monitor of a
// stream that catches up (stopMonitoring).
func (s *Server) shut(ctx context.Context, how func(*server.Server)) error {
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
