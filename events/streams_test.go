package events_test

import (
	"bytes"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/template"
)

// nats-server damages blocks that it compresses when it is killed: no stream may be
// compressed.
func TestNoStreamIsCompressedByTheServer(t *testing.T) {
	srv := eventstest.Start(t)
	js := eventstest.JetStream(t, srv)
	log := eventstest.Open(t, srv)
	part := []byte("part")
	if err := log.PutPart(t.Context(), template.SumOf(part), part); err != nil {
		t.Fatal(err)
	}
	if err := log.PutContext(t.Context(), "alice", "a", bytes.NewReader(part)); err != nil {
		t.Fatal(err)
	}
	seen := 0
	streams := js.ListStreams(t.Context())
	for s := range streams.Info() {
		seen++
		if s.Config.Compression != jetstream.NoCompression {
			t.Errorf("stream %s: compression %v, want none", s.Config.Name, s.Config.Compression)
		}
	}
	if err := streams.Err(); err != nil || seen < 17 {
		t.Errorf("%d streams listed, want at least 17: %v", seen, err)
	}
}
