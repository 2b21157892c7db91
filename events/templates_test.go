package events_test

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/template"
)

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

func TestTagsMove(t *testing.T) {
	srv := eventstest.Start(t)
	log := eventstest.Open(t, srv)
	view := eventstest.View(t, log)
	ctx := t.Context()
	manifest := func(files int64) ([]byte, template.ID) {
		m := template.Manifest{Arch: "amd64", Files: files, Tar: 1, Parts: []template.Sum{template.SumOf(nil)}}
		b, id, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return b, id
	}
	old, oldID := manifest(1)
	young, youngID := manifest(2)
	tag := func(ref string, m []byte) {
		t.Helper()
		r, err := template.ParseNew(ref)
		if err == nil {
			err = log.TagTemplate(ctx, "t", r, m)
		}
		if err == nil {
			err = view.Sync(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(ref string, id template.ID) {
		t.Helper()
		r, err := template.ParseRef(ref)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := view.Template("t", r)
		if ok != (id != "") || got.ID != id {
			t.Errorf("%s is %s, %v; want %s", ref, got.ID, ok, id)
		}
	}
	tag("a", old)
	tag("a:v1", old)
	tag("a", young)
	want("a", youngID)
	want("a:v1", oldID)
	want("a:v2", "")
	want(string(oldID), oldID)
	want(string(youngID)[:12], youngID)
	if _, ok := view.Template("other", template.Ref{Name: "a", Tag: "v1"}); ok {
		t.Error("another tenant can read it")
	}
	if _, ok := view.TemplateByID(oldID); !ok {
		t.Error("TemplateByID does not find it")
	}
	if err := log.UntagTemplate(ctx, "t", template.Ref{Name: "a", Tag: "v1"}); err != nil {
		t.Fatal(err)
	}
	if err := view.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	want("a:v1", "")
	want(string(oldID), "")
	again := eventstest.View(t, log) // a new view folds the same
	if got := again.Templates(""); len(got) != 1 || got[0].ID != youngID || time.Since(got[0].Tagged) > time.Minute {
		t.Errorf("in a new view: %+v", got)
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
		if has, err := log.HasPartOlder(t.Context(), sum, age); !has || err != nil {
			t.Fatalf("has it: %v, %v", has, err)
		}
		at, err := log.PartTime(t.Context(), sum)
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
