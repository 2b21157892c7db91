package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/sandbox"
)

func TestVolumeNamesAreUnique(t *testing.T) {
	f := newFixture(t)
	f.host.Lease(t.Context(), fleet.Lease{TTL: time.Hour, VolumeDrivers: []string{"fake"}})
	v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: "default", Name: "data", Host: f.host.Name, Created: time.Now(), Made: true}
	if err := f.log.NewVolume(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if a := f.do("POST", "/volumes", `{"name":"data"}`); a.code != 400 || !strings.Contains(a.body, "already exists") {
		t.Errorf("a name that is taken: %d %s", a.code, a.body)
	}
}
