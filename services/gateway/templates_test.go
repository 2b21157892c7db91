package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/template"
	"github.com/millrace/millrace/internal/part"
)

// madeTemplate is a template of one part, as its author uploads it.
type madeTemplate struct {
	packed   string
	sum      template.Sum
	manifest string
	id       template.ID
}

func makeTemplate(t *testing.T, content string) madeTemplate {
	t.Helper()
	p, err := part.New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	sum := template.SumOf([]byte(content))
	m := template.Manifest{Arch: "amd64", Files: 1, Size: 3 << 20, Tar: int64(len(content)), Parts: []template.Sum{sum}}
	raw, id, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return madeTemplate{string(p.Pack([]byte(content))), sum, string(raw), id}
}

func TestTemplatesAreUploadedInParts(t *testing.T) {
	f := newFixture(t)
	tm := makeTemplate(t, "one")
	at := "/v1/store/templates/parts/" + string(tm.sum)
	f.do("HEAD", at, "").want(t, "a missing part", 404, "")
	f.do("PUT", "/v1/store/templates/app:v1", tm.manifest).wantError(t, "a template with a missing part", 412)
	f.do("PUT", at, "not packed").wantError(t, "an unpacked part", 400)
	f.do("PUT", at, makeTemplate(t, "two").packed).wantError(t, "another part", 400)
	f.do("PUT", "/v1/store/templates/parts/..", tm.packed).wantError(t, "a part without a sum", 400)
	f.do("PUT", "/v1/store/templates/parts/"+strings.Repeat("x", 64), tm.packed).wantError(t, "a part with an invalid sum", 400)
	f.do("PUT", at, strings.Repeat("x", part.MaxPacked+1)).wantError(t, "a part too large", 413)
	for range 2 {
		f.do("PUT", at, tm.packed).want(t, "the part", 201, "")
	}
	f.do("HEAD", at, "").want(t, "a stored part", 200, "")
	for _, name := range []string{"host", "base", "A", "a:b:c", string(tm.id)} {
		f.do("PUT", "/v1/store/templates/"+name, tm.manifest).wantError(t, "the name "+name, 400)
	}
	f.do("PUT", "/v1/store/templates/app", " "+tm.manifest).wantError(t, "a manifest that is not canonical", 400)
	for _, name := range []string{"app", "app:v1"} {
		f.do("PUT", "/v1/store/templates/"+name, tm.manifest).want(t, name, 201, "")
	}

	var shown struct {
		ID   string `json:"id"`
		User string `json:"user"`
		Tag  string `json:"tag"`
	}
	f.do("GET", "/v1/store/templates/app:v1", "").want(t, "show", 200, "").decode(t, &shown)
	if shown.ID != string(tm.id) || shown.User != "user" || shown.Tag != "v1" {
		t.Errorf("shown: %+v", shown)
	}
	for _, name := range []string{"app", "app:v1", string(tm.id), string(tm.id)[:12]} {
		m := f.create(`{"templateID":"` + name + `"}`)
		var d struct {
			TemplateID string `json:"templateID"`
			Alias      string `json:"alias"`
		}
		f.do("GET", "/sandboxes/"+m.ID, "").want(t, name, 200, "").decode(t, &d)
		if d.TemplateID != string(tm.id) || d.Alias != name {
			t.Errorf("sandbox of %s: %+v", name, d)
		}
	}
	var list []struct{ TemplateID, Alias string }
	f.do("GET", "/v2/sandboxes?template=app:v1", "").want(t, "list by name", 200, "").decode(t, &list)
	if len(list) != 1 {
		t.Errorf("sandboxes of app:v1: %+v", list)
	}

	f.do("DELETE", "/v1/store/templates/app", "").want(t, "remove a name", 204, "")
	f.do("HEAD", at, "").want(t, "its part, while it has another name", 200, "")
	f.do("DELETE", "/v1/store/templates/app", "").wantError(t, "remove it again", 404)
	for _, name := range []string{"app:v1", string(tm.id)} { // its only tag is not the default
		var with struct {
			TemplateID string
			Names      []string
			Builds     []struct{ Status string }
		}
		f.do("GET", "/templates/"+name, "").want(t, "its builds", 200, "").decode(t, &with)
		if with.TemplateID != string(tm.id) || len(with.Names) != 1 || len(with.Builds) != 1 || with.Builds[0].Status != "ready" {
			t.Errorf("the builds of %s: %+v", name, with)
		}
	}
	f.do("DELETE", "/v1/store/templates/"+string(tm.id), "").want(t, "remove by id", 204, "")
	f.do("HEAD", at, "").want(t, "its part, when it has no name", 404, "")
	f.do("POST", "/sandboxes", `{"templateID":"app:v1"}`).wantError(t, "create from a removed template", 404)
}

func TestMovedTagLeavesNoParts(t *testing.T) {
	f := newFixture(t)
	one, two := makeTemplate(t, "one"), makeTemplate(t, "two")
	for _, tm := range []madeTemplate{one, two} {
		f.do("PUT", "/v1/store/templates/parts/"+string(tm.sum), tm.packed).want(t, "part", 201, "")
		f.do("PUT", "/v1/store/templates/app", tm.manifest).want(t, "tag", 201, "")
	}
	f.do("HEAD", "/v1/store/templates/parts/"+string(one.sum), "").want(t, "the part of the first", 404, "")
	f.do("HEAD", "/v1/store/templates/parts/"+string(two.sum), "").want(t, "the part of the second", 200, "")
}

func TestOperatorTemplatesAreShared(t *testing.T) {
	f := newFixture(t)
	tm := makeTemplate(t, "one")
	bob := []string{"X-Api-Key", bobKey}
	at := "/v1/store/templates/parts/" + string(tm.sum)
	f.do("PUT", at, tm.packed, bob...).wantError(t, "another tenant's part", 403)
	f.do("PUT", at, tm.packed).want(t, "part", 201, "")
	f.do("PUT", "/v1/store/templates/app", tm.manifest, bob...).wantError(t, "another tenant's template", 403)
	f.do("PUT", "/v1/store/templates/app", tm.manifest).want(t, "tag", 201, "")
	f.do("DELETE", "/v1/store/templates/app", "", bob...).wantError(t, "another tenant's removal", 403)

	f.do("POST", "/sandboxes", `{"templateID":"app"}`, bob...).want(t, "another tenant's sandbox", 201, "")
	var all []map[string]any
	f.do("GET", "/templates", "", bob...).want(t, "list", 200, "").decode(t, &all)
	if len(all) != 1 || all[0]["templateID"] != string(tm.id) || all[0]["public"] != true || all[0]["buildStatus"] != "ready" {
		t.Errorf("list: %v", all)
	}
	for _, field := range []string{"buildID", "cpuCount", "memoryMB", "diskSizeMB", "aliases", "names", "createdAt", "updatedAt",
		"createdBy", "lastSpawnedAt", "spawnCount", "buildCount", "envdVersion"} {
		if _, ok := all[0][field]; !ok {
			t.Errorf("no %s in the list: %v", field, all[0])
		}
	}
	var alias struct {
		TemplateID string `json:"templateID"`
		Public     bool   `json:"public"`
	}
	f.do("GET", "/templates/aliases/app", "", bob...).want(t, "alias", 200, "").decode(t, &alias)
	if alias.TemplateID != string(tm.id) || !alias.Public {
		t.Errorf("alias: %+v", alias)
	}
	f.do("PATCH", "/v2/templates/app", `{"public":false}`, bob...).wantError(t, "another tenant's", 404)
	f.do("PATCH", "/v2/templates/app", `{"public":false}`).want(t, "make it private", 200, `{"names":["app"]}`)
	f.do("POST", "/sandboxes", `{"templateID":"app"}`, bob...).wantError(t, "another tenant's sandbox of a private template", 404)
	f.do("GET", "/templates/aliases/app", "", bob...).wantError(t, "another tenant's alias of a private template", 404)
	f.do("GET", "/templates", "", bob...).want(t, "another tenant's list without it", 200, "[]")
	f.do("POST", "/sandboxes", `{"templateID":"app"}`).want(t, "the owner's sandbox", 201, "")
	f.do("PATCH", "/v2/templates/app", `{"public":true}`).want(t, "publish it", 200, `{"names":["app"]}`)
	f.do("PATCH", "/v2/templates/app", `{"public":true}`).want(t, "publish it again", 200, `{"names":["app"]}`)
	f.do("POST", "/sandboxes", `{"templateID":"app"}`, bob...).want(t, "another tenant's sandbox again", 201, "")
	f.do("GET", "/templates", "").want(t, "the operator's list", 200, "").decode(t, &all)
	if len(all) != 1 || all[0]["public"] != true {
		t.Errorf("the operator's list: %v", all)
	}
	f.do("GET", "/templates/aliases/other", "").wantError(t, "an unknown alias", 404)
	f.do("GET", "/templates/aliases/base", "").want(t, "the host's own files", 200, `{"public":true,"templateID":"base"}`)
	if b, err := json.Marshal(all[0]["aliases"]); err != nil || string(b) != `["app"]` {
		t.Errorf("aliases %s", b)
	}
}
