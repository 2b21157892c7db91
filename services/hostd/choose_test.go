package hostd

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// A host makes nothing that is weaker than what was demanded, whoever placed it.
func TestIsolationIsNeverLowered(t *testing.T) {
	r := lively(t)
	s, _ := r.view.Sandbox(r.sandbox())
	for _, level := range sandbox.Isolations() {
		id := r.request(sandbox.Requested{Isolation: level})
		if got := r.awaitPhase(id, sandbox.PhaseRunning); got.Live() != s.Isolation.AtLeast(level) {
			t.Errorf("isolation %s on a host that gives %s: %s %s", level, s.Isolation, got.Phase, got.Cause)
		} else if got.Live() && got.Isolation != s.Isolation {
			t.Errorf("the record says isolation %q, it has %q", got.Isolation, s.Isolation)
		}
	}
}

// Nobody has to name a driver: auto is one that works, and never direct.
func TestAutoDrivers(t *testing.T) {
	var first string
	for _, d := range Probe(t.Context()) {
		if d.Default {
			first = d.Name
		}
	}
	cfg := Config{}
	got, err := openDrivers(t.Context(), &cfg)
	if first == "" && err == nil || first != "" && (err != nil || got[0].Name() != first) {
		t.Errorf("opened %v, %v; doctor says %q", got, err, first)
	}
	for _, o := range got {
		if o.Name() == "direct" {
			t.Error("direct is offered without being named")
		}
	}
	cfg.Drivers = []string{"direct", Auto, "direct"}
	if named, err := openDrivers(t.Context(), &cfg); first != "" && (err != nil || len(named) != len(got)+1 || named[0].Name() != "direct") {
		t.Errorf("direct and auto: %v, %v", named, err)
	}
	cfg.Drivers = []string{"no-such"}
	if _, err := openDrivers(t.Context(), &cfg); !kind.Is(err, kind.Invalid) || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("an unknown driver: %v", err)
	}
}
