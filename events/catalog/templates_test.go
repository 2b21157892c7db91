package catalog_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/template"
)

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
