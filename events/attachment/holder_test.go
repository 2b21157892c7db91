package attachment_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/eventstest"
)

// A gateway that starts after the end of another one counts the time of its sessions from that
// end, not from its own start.
func TestHolderAfterARestart(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	before := log.Attachments()
	if err := before.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := before.Renew(t.Context(), "DEAD", time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	x := attachment.Session{ID: "S", Tenant: "t", Sandbox: "i1", Phase: attachment.Attached, Gateway: "DEAD"}
	if err := before.Put(t.Context(), &x); err != nil {
		t.Fatal(err)
	}
	after := log.Attachments()
	if err := after.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is between two renewals counts
		if err := after.Renew(t.Context(), "NEXT", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := after.Session("t", "S")
	if h := after.Holder(&got); !ok || !h.Gone || h.Since.After(got.Since) {
		t.Errorf("%+v, %v; the session is of %v", h, ok, got.Since)
	}
}
