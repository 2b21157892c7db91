package blob_test

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

func randomPart(n int) ([]byte, template.Sum) {
	data := make([]byte, n)
	rand.Read(data)
	return data, template.SumOf(data)
}

func TestPartsOutliveTheServer(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	ctx := t.Context()
	data := make([]byte, 3<<20)
	rand.Read(data)
	sum := template.SumOf(data)

	if _, err := log.Part(ctx, sum); !kind.Is(err, kind.NotFound) {
		t.Errorf("before there is a store: %v", err)
	}
	if has, err := log.HasPart(ctx, sum); has || err != nil {
		t.Errorf("has = %v, %v", has, err)
	}
	for range 2 { // storing it twice has no effect
		if err := log.PutPart(ctx, sum, data); err != nil {
			t.Fatal(err)
		}
	}
	srv.Stop()
	done := make(chan error, 1)
	go func() {
		got, err := log.Part(ctx, sum)
		if err == nil && !bytes.Equal(got, data) {
			t.Error("a different part was returned")
		}
		done <- err
	}()
	srv.Resume()
	if err := <-done; err != nil {
		t.Fatalf("read through a restart: %v", err)
	}
	if err := log.RemovePart(ctx, sum); err != nil {
		t.Fatal(err)
	}
	if err := log.RemovePart(ctx, sum); err != nil {
		t.Errorf("remove a removed part: %v", err)
	}
	if has, err := log.HasPart(ctx, sum); has || err != nil {
		t.Errorf("after remove: has = %v, %v", has, err)
	}
	if err := log.PutPart(ctx, sum, data); err != nil {
		t.Fatalf("store again: %v", err)
	}
	if got, err := log.Part(ctx, sum); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read again: %d bytes, %v", len(got), err)
	}
}

// The caller of HasPart may be about to reference the part: the reaper must not remove it
// first.
func TestHasPartRefreshesAPart(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	data, sum := randomPart(100)
	if err := log.PutPart(t.Context(), sum, data); err != nil {
		t.Fatal(err)
	}
	has := func(age time.Duration) time.Time {
		t.Helper()
		if has, err := log.Store.HasPartOlder(t.Context(), sum, age); !has || err != nil {
			t.Fatalf("has it: %v, %v", has, err)
		}
		at, err := log.Store.PartTime(t.Context(), sum)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	stored := has(time.Hour)
	if again := has(time.Hour); !again.Equal(stored) {
		t.Error("a new part was refreshed")
	}
	if renewed := has(0); !renewed.After(stored) {
		t.Error("an old part was not refreshed")
	}
	if got, err := log.Part(t.Context(), sum); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// A part of a copy cannot be read as a template's by its sum.
func TestPartsOfCopiesAreNotTemplateParts(t *testing.T) {
	log := eventstest.Open(t, eventstest.Start(t))
	data, sum := randomPart(100)
	if err := log.CopyStore().Put(t.Context(), sum, data, false); err != nil {
		t.Fatal(err)
	}
	if has, err := log.HasPart(t.Context(), sum); has || err != nil {
		t.Errorf("has = %v, %v", has, err)
	}
	if _, err := log.Part(t.Context(), sum); !kind.Is(err, kind.NotFound) {
		t.Errorf("read: %v", err)
	}
	other, _ := randomPart(100)
	if err := log.CopyStore().Put(t.Context(), sum, other, true); err != nil {
		t.Fatal(err)
	}
	if got, err := log.CopyStore().Part(t.Context(), sum); err != nil || !bytes.Equal(got, other) {
		t.Errorf("replaced: %v", err)
	}
}
