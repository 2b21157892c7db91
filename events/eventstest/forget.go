package eventstest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Forget empties the streams whose names begin with one of the prefixes, as the end of the
// retention does: "OUT_" is all output, "PROC" the catalog.
func Forget(t testing.TB, s *Server, prefixes ...string) {
	t.Helper()
	ForgetBut(t, s, 0, prefixes...)
}

// ForgetBut is Forget except for the given number of each stream's last messages.
func ForgetBut(t testing.TB, s *Server, last uint64, prefixes ...string) {
	t.Helper()
	js := JetStream(t, s)
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		for _, p := range prefixes {
			if !strings.HasPrefix(name, p) {
				continue
			}
			st, err := js.Stream(t.Context(), name)
			if err == nil {
				err = st.Purge(t.Context(), jetstream.WithPurgeKeep(last))
			}
			if err != nil {
				t.Fatalf("forget %s: %v", name, err)
			}
		}
	}
	if err := names.Err(); err != nil {
		t.Fatalf("list streams: %v", err)
	}
}

// Drop deletes a stream, as if all servers that had it were down.
func Drop(t testing.TB, s *Server, stream string) {
	t.Helper()
	if err := JetStream(t, s).DeleteStream(t.Context(), stream); err != nil {
		t.Fatalf("drop %s: %v", stream, err)
	}
}

// JetStream connects to the server, bypassing the log, until the test ends.
func JetStream(t testing.TB, s *Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return js
}
