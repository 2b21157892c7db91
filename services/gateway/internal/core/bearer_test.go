package core_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/sandbox"
)

// Any stranger may have it sought who signed something: meanwhile nobody waits.
func TestSignerHoldsNobodyUp(t *testing.T) {
	h := newHouse(t)
	h.sandbox(alice)
	st := h.sandbox(alice)
	got, ok := h.Signer(func(token string) bool {
		read := make(chan struct{})
		go func() {
			h.Bearer(t.Context(), st.ID, token) //nolint:errcheck // that it comes back counts
			close(read)
		}()
		select {
		case <-read:
		case <-time.After(5 * time.Second):
			t.Error("who wants to read the catalogue waits")
		}
		return token == h.Token(st.ID)
	})
	if !ok || got != st.ID {
		t.Errorf("it is %q, %v", got, ok)
	}
	if got, ok := h.Signer(func(string) bool { return false }); ok || got != sandbox.ID("") {
		t.Errorf("nobody signed, and it is %q", got)
	}
}
