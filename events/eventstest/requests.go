package eventstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Requests counts the requests for stored messages that a server receives from now on. It
// returns a function that returns their number so far, at most 16,384.
func Requests(t testing.TB, s *Server) (sofar func() int) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	seen := make(chan *nats.Msg, 1<<14)
	for _, subject := range []string{"$JS.API.DIRECT.GET.>", "$JS.API.STREAM.MSG.GET.>"} {
		if _, err := nc.ChanSubscribe(subject, seen); err != nil {
			t.Fatal(err)
		}
	}
	flush := func() {
		if err := nc.FlushTimeout(10 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	return func() int {
		flush()
		return len(seen)
	}
}
