package gateway_test

import (
	"testing"
)

// E2B's SDKs name templates and snapshots by their team too: team/name:tag.
func TestNamesMayHaveTheirTeam(t *testing.T) {
	f := newFront(t)
	bob := []string{"X-Api-Key", bobKey}
	r := f.request("default/app:v1")
	if len(r.Names) != 1 || r.Names[0] != "app" {
		t.Errorf("requested: %+v", r)
	}
	f.do("POST", "/v2/templates/default%2Fapp/builds/"+r.Build, `{"fromTemplate":"default/base","steps":[{"type":"ENV","args":["A","1"]}]}`).want(t, "start", 202, "")
	if s := f.built(&r); s.Status != "ready" {
		t.Fatalf("%+v", s)
	}
	f.do("POST", "/templates/tags", `{"target":"default/app:v1","tags":["v2"]}`).want(t, "tag", 201, "")
	for _, at := range []string{"/templates/default%2Fapp", "/templates/default%2fapp%3Av2", "/templates/aliases/default%2Fapp%3Av1", "/templates/aliases/default%2Fbase", "/templates/default%2Fapp/tags"} {
		f.do("GET", at, "").want(t, at, 200, "")
	}
	m := f.create(`{"templateID":"default/app:v1"}`)
	f.create(`{"templateID":"default/base"}`)
	for _, name := range []string{"default/app:v1", "app:v1", r.Template} {
		var list []struct{ SandboxID, Alias string }
		f.do("GET", "/v2/sandboxes?template="+name, "").want(t, name, 200, "").decode(t, &list)
		if len(list) != 1 || list[0].SandboxID != m.ID || list[0].Alias != "app:v1" {
			t.Errorf("sandboxes of %s: %+v", name, list)
		}
	}
	var s snapshotMade
	f.do("POST", "/sandboxes/"+m.ID+"/snapshots", `{"name":"default/kept:v1"}`).want(t, "snapshot", 201, "").decode(t, &s)
	if len(s.Names) != 1 || s.Names[0] != "kept:v1" {
		t.Errorf("snapshot %+v", s)
	}
	f.create(`{"templateID":"default/kept:v1"}`)
	var kept []snapshotMade
	f.do("GET", "/snapshots?name=default/kept", "").want(t, "snapshots", 200, "").decode(t, &kept)
	if len(kept) != 1 || kept[0].ID != s.ID {
		t.Errorf("snapshots %+v", kept)
	}

	// Another team has none of them, and what is asked of it is not what is one's own.
	f.do("POST", "/v3/templates", `{"name":"bob/app"}`).wantError(t, "build in another team", 400)
	f.do("POST", "/sandboxes/"+m.ID+"/snapshots", `{"name":"bob/kept"}`).wantError(t, "snapshot in another team", 400)
	f.do("GET", "/snapshots?name=bob/kept", "").want(t, "snapshots of another team", 200, "[]")
	for _, name := range []string{"bob/app:v1", "bob/kept:v1", "bob/base", "default/app/v1", "/app:v1", "default/", "default/../app"} {
		f.do("POST", "/sandboxes", `{"templateID":"`+name+`"}`).wantError(t, name, 404)
	}
	for _, at := range []string{"/templates/bob%2Fapp", "/templates/aliases/bob%2Fapp%3Av1", "/templates/bob%2Fapp/tags", "/templates/bob%2Fapp/builds/" + r.Build + "/status", "/templates/bob%2Fbase"} {
		f.do("GET", at, "").wantError(t, at, 404)
	}
	f.do("DELETE", "/templates/bob%2Fkept%3Av1", "").wantError(t, "delete another team's", 404)
	f.do("POST", "/templates/tags", `{"target":"bob/app:v1","tags":["v3"]}`).wantError(t, "tag another team's", 404)
	f.do("DELETE", "/templates/tags", `{"name":"bob/app","tags":["v2"]}`).wantError(t, "untag another team's", 404)

	f.do("POST", "/sandboxes", `{"templateID":"default/app:v1"}`, bob...).wantError(t, "another team's private one", 404)
	f.do("PATCH", "/v2/templates/default%2Fapp", `{"public":true}`).want(t, "publish", 200, `{"names":["app"]}`)
	f.do("POST", "/sandboxes", `{"templateID":"default/app:v1"}`, bob...).want(t, "another team's public one", 201, "")
	f.do("DELETE", "/templates/default%2Fapp", "", bob...).wantError(t, "delete another team's public one", 404)

	f.do("DELETE", "/templates/tags", `{"name":"default/app","tags":["v2"]}`).want(t, "untag", 204, "")
	f.do("DELETE", "/templates/default%2Fkept%3Av1", "").want(t, "delete the snapshot", 204, "")
	f.do("DELETE", "/templates/default%2Fapp", "").want(t, "delete the template", 204, "")
}
