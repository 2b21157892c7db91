package volumes

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/sandbox"
)

// A sandbox can mount a volume as soon as the volume is stored, although the host's view receives
// it later.
func TestAVolumeIsFoundAsSoonAsItIsStored(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	st := New(Config{Dir: t.TempDir(), Host: "h", Log: log, View: eventstest.View(t, eventstest.Open(t, srv)), Slog: slog.New(slog.DiscardHandler)})
	for i := range 100 {
		v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: "t", Name: fmt.Sprint("v", i), Host: "h", Created: time.Now(), Made: true}
		if err := makeVolume(st.path(v.ID)); err != nil {
			t.Fatal(err)
		}
		if err := log.NewVolume(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		got, err := st.Mounts(t.Context(), &sandbox.Requested{Volumes: []sandbox.Mount{{Volume: v.ID, Path: "/data"}}})
		if err != nil || len(got) != 1 || got[0].Source != st.path(v.ID) {
			t.Fatalf("got %v, %v; want %q", got, err, st.path(v.ID))
		}
	}
}
