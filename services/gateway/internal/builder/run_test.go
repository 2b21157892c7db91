package builder

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/services/gateway/internal/core"
)

// A build that is taken over continues with the layers that it has, whatever its base's name
// refers to by then.
func TestLayerKeepsItsTemplate(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	c, principal, next := newRunsOn(t, log)
	r := next(startBuild(t, c, principal, build.Spec{Template: template.Base}))
	first, moved := string(template.SumOf([]byte("first"))), string(template.SumOf([]byte("moved")))
	own := sandbox.Snapshot{ID: sandbox.KeyedSnapshotID(r.layers.key("layer", 1)), Tenant: "t", Template: first}
	err := log.PutSnapshot(t.Context(), &own)
	if err == nil {
		err = c.Core.Sync(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	from, err := r.layers.layer(t.Context(), origin{template: moved}, &layer{step: 1, do: &build.Step{Type: build.Run, Args: []string{"x"}}})
	if err != nil || from.snap.ID != own.ID || from.template != first {
		t.Errorf("layer %s on %s, %v; want %s on %s", from.snap.ID, from.template, err, own.ID, first)
	}
}

// A panic in a build fails that build only.
func TestPanicFailsTheBuild(t *testing.T) {
	r := New(Config{}).newRun(build.State{ID: build.NewID()}, build.Spec{}, core.Principal{}) // the missing operations make it panic
	if err := r.buildRecovered(t.Context()); !kind.Is(err, kind.Internal) || !strings.Contains(err.Error(), "fault") {
		t.Errorf("got %v", err)
	}
}
