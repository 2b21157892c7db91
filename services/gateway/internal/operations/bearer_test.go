package operations_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// Unauthenticated requests can start the search for a signer, so it must not block the view.
func TestSignerDoesNotBlockTheView(t *testing.T) {
	h := newFixture(t)
	h.sandbox(alice)
	st := h.sandbox(alice)
	got, ok := h.Lifecycle.Signer(func(token string) bool {
		read := make(chan struct{})
		go func() {
			h.Lifecycle.Bearer(t.Context(), st.ID, token)
			close(read)
		}()
		select {
		case <-read:
		case <-time.After(time.Minute):
			t.Error("reading the view blocks during the search")
		}
		return token == h.Lifecycle.Token(st.ID)
	})
	if !ok || got != st.ID {
		t.Errorf("got %q, %v", got, ok)
	}
	if got, ok := h.Lifecycle.Signer(func(string) bool { return false }); ok || got != sandbox.ID("") {
		t.Errorf("got %q although no token matches", got)
	}
}
