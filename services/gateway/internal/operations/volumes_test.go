package operations_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/events/catalog"
	"github.com/millrace/millrace/events/fleet"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// A request that arrives while the only host starts waits for it.
func TestVolumeWaitsForAStartingHost(t *testing.T) {
	h := newFixture(t)
	_, err := h.Storage.CreateVolume(t.Context(), alice, "early")
	wantKind(t, "without a host that has volumes", err, kind.Unavailable)

	h.host.Lease(t.Context(), fleet.Lease{TTL: time.Hour, Draining: true, Starting: true})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = h.Storage.CreateVolume(short, alice, "data")
	wantKind(t, "while the host begins", err, kind.Unavailable)
	if short.Err() == nil {
		t.Error("the request did not wait for the host")
	}

	made := make(chan error, 1)
	go func() {
		_, err := h.Storage.CreateVolume(t.Context(), alice, "data")
		made <- err
	}()
	h.host.Lease(t.Context(), fleet.Lease{TTL: time.Hour, VolumeDrivers: []string{"fake"}})
	asked, err := h.view.AwaitVolume(t.Context(), alice.Tenant, "data", func(v *sandbox.Volume) bool { return v.Host == h.host.Name })
	if err != nil {
		t.Fatal(err)
	}
	asked.Made = true
	if err := h.log.PutVolume(t.Context(), &asked); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// A tenant's number of secrets and volumes is limited, since every gateway holds them in memory.
func TestSecretsAndVolumesAreBounded(t *testing.T) {
	h := newFixture(t)
	for i := range 1000 {
		name := fmt.Sprint("x", i)
		v := sandbox.Volume{ID: sandbox.NewVolumeID(), Tenant: alice.Tenant, Name: name, Host: h.host.Name, Created: time.Now()}
		if err := h.log.NewVolume(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		if err := h.log.NewSecret(t.Context(), &catalog.Secret{ID: "sec_" + name, Tenant: alice.Tenant, Name: name, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := h.Storage.CreateVolume(t.Context(), alice, "more")
	wantKind(t, "a volume more", err, kind.Exhausted)
	_, err = h.Storage.CreateSecret(t.Context(), alice, "more", "value", nil)
	wantKind(t, "a secret more", err, kind.Exhausted)
}
