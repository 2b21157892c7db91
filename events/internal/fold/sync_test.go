package fold

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/events/internal/store"
	"github.com/millrace/millrace/events/internal/streams"
)

// TestSyncWaitsForStart has callers of Sync that come before Start. A gateway serves requests
// before all its views are started.
func TestSyncWaitsForStart(t *testing.T) {
	p := NewProgress(open(t))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Sync(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("before Start: %v, want that the context has ended", err)
	}
	synced := make(chan error, 8)
	for range cap(synced) {
		go func() { synced <- p.Sync(t.Context()) }()
	}
	if err := p.Start(t.Context(), []Source{{Stream: streams.Volumes, Apply: func(store.Message) error { return nil }}}); err != nil {
		t.Fatal(err)
	}
	for range cap(synced) {
		if err := <-synced; err != nil {
			t.Error(err)
		}
	}
}
