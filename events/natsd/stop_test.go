package natsd

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A server that hangs while it stops, as nats-server does when it waits for its own
// goroutines, is abandoned.
func TestAHangingServerDoesNotBlockItsProcess(t *testing.T) {
	for name, stop := range map[string]func(*Server, func(*server.Server)){
		"at the end": func(s *Server, hang func(*server.Server)) { s.end(hang) },
		"in a restart": func(s *Server, hang func(*server.Server)) {
			ctx, cancel := context.WithTimeout(t.Context(), s.stopTimeout)
			defer cancel()
			if err := s.shutdown(ctx, hang); err == nil {
				t.Error("shut returned no error although the server hangs")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Start(Config{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Stop()
			s.stopTimeout = 100 * time.Millisecond
			released := make(chan struct{})
			defer close(released)
			began := time.Now()
			stop(s, func(*server.Server) { <-released })
			if took := time.Since(began); took > StopTimeout {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// How long a lame duck waits for its clients does not depend on their number.
func TestALameDuckClosesItsClientsInTime(t *testing.T) {
	opts, err := options(&Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	// nats-server needs a second to hand over leaders and at most 10 s to end its cluster's work.
	if got, most := opts.LameDuckDuration, StopTimeout-11*time.Second; got > most || opts.LameDuckGracePeriod >= got {
		t.Errorf("clients are closed within %v after %v, want at most %v in all", got, opts.LameDuckGracePeriod, most)
	}
}
