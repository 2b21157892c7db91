package gateway_test

import (
	"fmt"
	"testing"
	"time"
)

func TestTeamAndItsLoad(t *testing.T) {
	f := newFixture(t)
	f.do("GET", "/teams", "").want(t, "teams", 200, `[{"teamID":"default","name":"default","apiKey":"`+key+`","isDefault":true}]`)
	f.do("GET", "/teams", "", "X-Api-Key", bobKey).want(t, "another tenant's teams", 200, `[{"teamID":"bob","name":"bob","apiKey":"`+bobKey+`","isDefault":true}]`)
	begin := time.Now().Unix()
	a := f.create(`{"templateID":"base"}`)
	f.create(`{"templateID":"base"}`)
	f.do("DELETE", "/sandboxes/"+a.ID, "").want(t, "kill", 204, "")
	f.create(`{"templateID":"base"}`)
	within := fmt.Sprintf("start=%d&end=%d", begin-10, begin+3600)
	type metric struct {
		Timestamp           time.Time
		TimestampUnix       int64
		ConcurrentSandboxes int
		SandboxStartRate    float64
		Value               float64
	}
	var all []metric
	f.do("GET", "/teams/default/metrics?"+within, "").want(t, "metrics", 200, "").decode(t, &all)
	most, started := 0, 0.0
	for i, m := range all {
		most, started = max(most, m.ConcurrentSandboxes), started+m.SandboxStartRate
		if m.TimestampUnix != begin-10+int64(i) || !m.Timestamp.Equal(time.Unix(m.TimestampUnix, 0)) {
			t.Errorf("%d: %+v", i, m)
		}
	}
	if most != 2 || started != 3 {
		t.Errorf("%d at once, %v started: %+v", most, started, all)
	}
	var top metric
	f.do("GET", "/teams/default/metrics/max?metric=concurrent_sandboxes&"+within, "").want(t, "maximum at once", 200, "").decode(t, &top)
	if top.Value != 2 || top.TimestampUnix < begin {
		t.Errorf("%+v", top)
	}
	f.do("GET", "/teams/default/metrics/max?metric=sandbox_start_rate&"+within, "").want(t, "the highest rate", 200, "").decode(t, &top)
	if top.Value < 1 || top.Value > 3 {
		t.Errorf("%+v", top)
	}
	f.do("GET", "/teams/default/metrics", "").want(t, "a day's metrics", 200, "").decode(t, &all)
	if len(all) == 0 || len(all) > 500 || all[len(all)-1].ConcurrentSandboxes != 2 {
		t.Errorf("%d metrics of a day", len(all))
	}
	f.do("GET", "/teams/bob/metrics?"+within, "").wantError(t, "another team's", 403)
	f.do("GET", "/teams/bob/metrics/max?metric=sandbox_start_rate", "").wantError(t, "another team's maximum", 403)
	f.do("GET", "/teams/bob/metrics?"+within, "", "X-Api-Key", bobKey).want(t, "bob's own", 200, "")
	for _, bad := range []string{"/metrics?start=x", "/metrics?start=20&end=10", "/metrics/max", "/metrics/max?metric=cpu"} {
		f.do("GET", "/teams/default"+bad, "").wantError(t, bad, 400)
	}
}

// E2B's SDKs also name templates and snapshots with their team: team/name:tag.
func TestNamesMayContainTheTeam(t *testing.T) {
	f := newFixture(t)
	bob := []string{"X-Api-Key", bobKey}
	r := f.request("default/app:v1")
	if len(r.Names) != 1 || r.Names[0] != "app" {
		t.Errorf("requested: %+v", r)
	}
	f.do("POST", "/v2/templates/default%2Fapp/builds/"+r.Build, `{"fromTemplate":"default/base","steps":[{"type":"ENV","args":["A","1"]}]}`).want(t, "start", 202, "")
	if s := f.awaitBuild(&r); s.Status != "ready" {
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
	if len(s.Names) != 1 || s.ID != "kept:v1" || s.Names[0] != "kept" {
		t.Errorf("snapshot %+v", s)
	}
	f.create(`{"templateID":"default/kept:v1"}`)
	var kept []snapshotMade
	f.do("GET", "/snapshots?name=default/kept", "").want(t, "snapshots", 200, "").decode(t, &kept)
	if len(kept) != 1 || kept[0].ID != s.ID {
		t.Errorf("snapshots %+v", kept)
	}

	// Another team has none of them, and its names do not refer to one's own.
	f.do("POST", "/v3/templates", `{"name":"bob/app"}`).wantError(t, "build in another team", 400)
	f.do("POST", "/sandboxes/"+m.ID+"/snapshots", `{"name":"bob/kept"}`).wantError(t, "snapshot in another team", 400)
	f.do("GET", "/snapshots?name=bob/kept", "").want(t, "snapshots of another team", 200, "[]")
	for _, name := range []string{"bob/app:v1", "bob/kept:v1", "bob/base", "default/app/v1", "/app:v1", "default/", "default/../app"} {
		f.do("POST", "/sandboxes", `{"templateID":"`+name+`"}`).wantError(t, name, 404)
	}
	for _, at := range []string{"/templates/bob%2Fapp", "/templates/aliases/bob%2Fapp%3Av1", "/templates/bob%2Fapp/tags", "/templates/bob%2Fbase"} {
		f.do("GET", at, "").wantError(t, at, 404)
	}
	f.do("GET", "/templates/bob%2Fapp/builds/"+r.Build+"/status", "").wantError(t, "another team's build", 400)
	f.do("POST", "/v3/templates", `{"name":"app","teamID":"bob"}`).wantError(t, "build for another team", 400)
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
