package attachment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/attachment"
	"github.com/millrace/millrace/events/kind"
)

// One client at a time has the writer's lease, until it hands it over, releases it, or is not heard of.
func TestWriter(t *testing.T) {
	now := time.Unix(1000, 0)
	claim := func(name string) attachment.Claim {
		return attachment.Claim{Lease: attachment.HashLease(name), Name: name}
	}
	ann, bob, eve := claim("Ann"), claim("Bob"), claim("Eve")
	w := attachment.Writer{Received: now}
	take := func(c attachment.Claim, ask bool) (bool, error) { return w.Take(c, ask, w.Held(false, now), now) }
	if ok, err := take(ann, false); !ok || err != nil {
		t.Fatalf("a free lease: %v, %v", ok, err)
	}
	if _, err := take(bob, false); !kind.Is(err, kind.Conflict) || !strings.Contains(kind.Message(err), `"Ann"`) {
		t.Errorf("a lease of another client: %v", err)
	}
	if err := w.HandOver(ann.Lease, true, now); !kind.Is(err, kind.Conflict) {
		t.Errorf("a hand-over without a request: %v", err)
	}
	if ok, err := take(bob, true); ok || err != nil {
		t.Errorf("to ask: %v, %v", ok, err)
	}
	if _, err := take(eve, true); !kind.Is(err, kind.Conflict) || !strings.Contains(kind.Message(err), `"Bob"`) {
		t.Errorf("to ask after another client: %v", err)
	}
	if err := w.Release(bob.Lease, true, now); err != nil || w.Holder.Name != "Ann" || w.Asked.Name != "" {
		t.Errorf("the end of a wait: %+v, %v", w, err)
	}
	if ok, err := take(bob, true); ok || err != nil {
		t.Errorf("to ask again: %v, %v", ok, err)
	}
	if err := w.HandOver(bob.Lease, true, now); !kind.Is(err, kind.Conflict) {
		t.Errorf("a hand-over by another client: %v", err)
	}
	if err := w.HandOver(ann.Lease, true, now); err != nil || w.Holder.Name != "Bob" || w.Asked.Name != "" {
		t.Errorf("a hand-over: %+v, %v", w, err)
	}
	if err := w.Release(ann.Lease, true, now); !kind.Is(err, kind.Conflict) {
		t.Errorf("a release by another client: %v", err)
	}
	for name, held := range map[string]bool{
		"renewed in time":     w.Held(false, now.Add(attachment.WriterTTL-1)),
		"not renewed":         !w.Held(false, now.Add(attachment.WriterTTL)),
		"its gateway is gone": !w.Held(true, now),
	} {
		if !held {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if ok, err := w.Take(eve, false, w.Held(true, now), now); !ok || err != nil || w.Holder.Name != "Eve" {
		t.Errorf("after the gateway has gone: %v, %v", ok, err)
	}
	if ok, err := take(ann, true); ok || err != nil {
		t.Errorf("to ask: %v, %v", ok, err)
	}
	if err := w.Release(eve.Lease, true, now); err != nil || w.Holder.Name != "Ann" {
		t.Errorf("a release while another client waits: %+v, %v", w, err)
	}
	if err := w.Release(ann.Lease, true, now); err != nil || w.Held(false, now) {
		t.Errorf("a release: %+v, %v", w, err)
	}
}
