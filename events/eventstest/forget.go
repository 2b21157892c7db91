package eventstest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Forget empties the streams whose names begin with one of the prefixes, as the
// end of the retention does: "OUT_" is all output, "PROC" the catalogue.
func Forget(t testing.TB, s *Server, prefixes ...string) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		for _, p := range prefixes {
			if !strings.HasPrefix(name, p) {
				continue
			}
			st, err := js.Stream(t.Context(), name)
			if err == nil {
				err = st.Purge(t.Context())
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
