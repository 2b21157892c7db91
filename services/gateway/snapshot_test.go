package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/fleet"
)

type snapshotMade struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func TestSnapshotsOnTheWire(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","timeout":60}`)
	path := "/sandboxes/" + m.ID
	var plain, named snapshotMade
	f.do("POST", path+"/snapshots", "").want(t, "snapshot", 201, "").decode(t, &plain)
	f.do("POST", path+"/snapshots", `{"name":"mine:v1"}`).want(t, "named snapshot", 201, "").decode(t, &named)
	if !strings.HasSuffix(plain.ID, ":default") || plain.Names == nil || len(plain.Names) != 0 || named.ID != "mine:v1" || len(named.Names) != 1 || named.Names[0] != "mine" {
		t.Errorf("snapshots %+v %+v", plain, named)
	}
	for _, bad := range []string{`{"name":"a/b"}`, `{"name":":"}`, `{"name":"a:b:c"}`, `{"name":"a:"}`, `{"name":"s00000000000000000000"}`, `{"name":"a\u0000b"}`, `{"name":"base"}`, `{"name":"host:v1"}`, `{"name":"` + strings.Repeat("a", 200) + `"}`} {
		f.do("POST", path+"/snapshots", bad).wantError(t, bad, 400)
	}
	f.do("POST", "/sandboxes/i00000000000000000000/snapshots", "").wantError(t, "snapshot of an unknown sandbox", 404)

	list := func(query string) (ids []string, next string) {
		t.Helper()
		a := f.do("GET", "/snapshots"+query, "").want(t, query, 200, "")
		var all []snapshotMade
		a.decode(t, &all)
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		return ids, a.header.Get("X-Next-Token")
	}
	for query, want := range map[string]string{
		"": named.ID + " " + plain.ID, "?sandboxID=" + m.ID: named.ID + " " + plain.ID, "?sandboxID=i0": "",
		"?name=mine:v1": named.ID, "?name=mine": named.ID, "?name=mine:v2": "", "?name=min": "", "?name=" + plain.ID: plain.ID,
		"?name=" + strings.TrimSuffix(plain.ID, ":default"): plain.ID, "?name=:v1": "", "?limit=100": named.ID + " " + plain.ID,
	} {
		if ids, next := list(query); strings.Join(ids, " ") != want || next != "" {
			t.Errorf("%q: %v %q, want %s", query, ids, next, want)
		}
	}
	first, next := list("?limit=1")
	second, last := list("?limit=1&nextToken=" + next)
	if len(first) != 1 || first[0] != named.ID || len(second) != 1 || second[0] != plain.ID || next == "" || last != "" {
		t.Errorf("pages %v %q, %v %q", first, next, second, last)
	}
	for _, bad := range []string{"?limit=0", "?limit=101", "?nextToken=%25"} {
		f.do("GET", "/snapshots"+bad, "").wantError(t, bad, 400)
	}

	own := strings.TrimSuffix(plain.ID, ":default")
	for template, want := range map[string]string{plain.ID: own, own: own, "mine:v1": "mine:v1"} {
		made := f.create(`{"templateID":"` + template + `"}`)
		a := f.do("GET", "/sandboxes/"+made.ID, "").want(t, "detail", 200, "")
		if !strings.Contains(a.body, `"memoryMB":77`) || !strings.Contains(a.body, `"templateID":"`+want+`"`) || strings.Contains(a.body, `"alias":"s`) {
			t.Errorf("from %s: %s", template, a.body)
		}
		f.create(`{"templateID":"` + want + `"}`)
	}
	for at, want := range map[string]string{strings.Replace(plain.ID, ":", "%3A", 1): "default", own: "default", "mine%3Av1": "v1", "mine": "v1", "default%2Fmine": "v1"} {
		var tags []struct {
			Tag     string    `json:"tag"`
			Build   string    `json:"buildID"`
			Created time.Time `json:"createdAt"`
		}
		f.do("GET", "/templates/"+at+"/tags", "").want(t, at, 200, "").decode(t, &tags)
		if len(tags) != 1 || tags[0].Tag != want || len(tags[0].Build) != 36 || tags[0].Created.IsZero() {
			t.Errorf("tags of %s: %+v", at, tags)
		}
	}
	f.do("GET", "/templates/other/tags", "").wantError(t, "tags of an unknown template", 404)
	f.do("GET", "/templates/mine/tags", "", "X-Api-Key", bobKey).wantError(t, "tags of another tenant's", 404)
	f.do("POST", "/sandboxes", `{"templateID":"mine"}`).wantError(t, "an unknown tag", 404)
	f.do("DELETE", "/templates/"+strings.Replace(plain.ID, ":", "%3A", 1), "").want(t, "delete", 204, "")
	f.do("DELETE", "/templates/"+plain.ID, "").wantError(t, "delete again", 404)
	f.do("DELETE", "/templates/mine:v1", "").want(t, "delete by name", 204, "")
	f.do("POST", "/sandboxes", `{"templateID":"`+plain.ID+`"}`).wantError(t, "from a deleted snapshot", 404)
	if ids, _ := list(""); len(ids) != 0 {
		t.Errorf("after all were deleted: %v", ids)
	}
}

// A name refers to one snapshot, as a template's does: the newest. It replaces the previous
// one and has the same id.
func TestSnapshotReplacesItsNamesake(t *testing.T) {
	f := newFixture(t)
	path := "/sandboxes/" + f.create(`{"templateID":"base"}`).ID + "/snapshots"
	take := func(name string) (s snapshotMade) {
		f.do("POST", path, `{"name":"`+name+`"}`).want(t, name, 201, "").decode(t, &s)
		return s
	}
	list := func(query string) string {
		var all []snapshotMade
		f.do("GET", "/snapshots"+query, "").want(t, query, 200, "").decode(t, &all)
		var said []string
		for _, s := range all {
			said = append(said, s.ID+strings.Join(s.Names, ""))
		}
		return strings.Join(said, " ")
	}
	first, other, second := take("mine"), take("mine:v1"), take("mine:default")
	if first.ID != "mine:default" || second.ID != first.ID || other.ID != "mine:v1" {
		t.Errorf("ids %s, %s, %s", first.ID, other.ID, second.ID)
	}
	if got, want := list(""), "mine:defaultmine mine:v1mine"; got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	for query, want := range map[string]string{"?name=mine": "mine:defaultmine", "?name=mine:default": "mine:defaultmine", "?name=mine:v1": "mine:v1mine"} {
		if got := list(query); got != want {
			t.Errorf("query %s lists %s, want %s", query, got, want)
		}
	}
	f.create(`{"templateID":"mine"}`)
	f.do("DELETE", "/templates/mine:default", "").want(t, "delete by name", 204, "")
	f.do("POST", "/sandboxes", `{"templateID":"mine"}`).wantError(t, "by the deleted name", 404)
	f.create(`{"templateID":"mine:v1"}`)
}

func TestForkOnTheWire(t *testing.T) {
	f := newFixture(t)
	m := f.create(`{"templateID":"base","timeout":60,"metadata":{"k":"v"}}`)
	var forks []struct {
		Sandbox *createdSandbox `json:"sandbox"`
		Error   json.RawMessage `json:"error"`
	}
	f.do("POST", "/sandboxes/"+m.ID+"/fork", `{"count":3}`).want(t, "fork", 201, "").decode(t, &forks)
	seen := map[string]bool{m.ID: true}
	for _, x := range forks {
		if x.Sandbox == nil || x.Error != nil || seen[x.Sandbox.ID] {
			t.Fatalf("forks %+v", forks)
		}
		seen[x.Sandbox.ID] = true
		a := f.do("GET", "/sandboxes/"+x.Sandbox.ID, "").want(t, "detail", 200, "")
		if !strings.Contains(a.body, `"metadata":{"k":"v"}`) {
			t.Errorf("fork: %s", a.body)
		}
	}
	if len(forks) != 3 {
		t.Errorf("%d forks", len(forks))
	}
	if a := f.do("GET", "/snapshots", ""); a.body != "[]" {
		t.Errorf("a fork's snapshot is listed: %s", a.body)
	}
	for _, bad := range []string{`{"count":0}`, `{"count":101}`, `{"timeout":-1}`} {
		f.do("POST", "/sandboxes/"+m.ID+"/fork", bad).wantError(t, bad, 400)
	}
	whole := f.create(`{"templateID":"base","metadata":{"memory":"kept"}}`)
	for id, want := range map[string]string{m.ID: `"memory":false`, whole.ID: `"memory":true`} {
		for _, what := range []string{"/snapshots", "/fork"} {
			if a := f.do("POST", "/sandboxes/"+id+what, "").want(t, what, 201, ""); !strings.Contains(a.body, want) {
				t.Errorf("%s: %s, want %s", what, a.body, want)
			}
		}
	}
	stiff := f.create(`{"templateID":"base","metadata":{"snapshot":"never"}}`)
	f.do("POST", "/sandboxes/"+stiff.ID+"/fork", "").wantError(t, "fork without snapshot support", 501)
	f.do("POST", "/sandboxes/"+stiff.ID+"/snapshots", "").wantError(t, "snapshot without snapshot support", 501)
}

func TestDrainOnTheWire(t *testing.T) {
	f := newFixture(t)
	state := func() string {
		var b struct {
			Hosts []struct{ State string }
		}
		f.do("GET", "/v1/hosts", "").want(t, "hosts", 200, "").decode(t, &b)
		return b.Hosts[0].State
	}
	f.do("POST", "/v1/hosts/h1/drain", "").want(t, "drain", 204, "")
	if got := state(); got != "draining" {
		t.Errorf("after drain: %s", got)
	}
	sbx := f.create(`{"templateID":"base"}`)
	f.do("POST", "/sandboxes/"+sbx.ID+"/snapshots", `{"name":"mine:v1"}`).want(t, "snapshot", 201, "")
	undrainable := func() string { return f.do("GET", "/v1/hosts/h1/undrainable", "").want(t, "undrainable", 200, "").body }
	if got := undrainable(); !strings.Contains(got, `"kind":"sandbox","id":"`+sbx.ID) || !strings.Contains(got, `"name":"mine:v1"`) || !strings.Contains(got, `"safe":false`) {
		t.Errorf("undrainable: %s", got)
	}
	f.do("DELETE", "/sandboxes/"+sbx.ID, "").want(t, "kill", 204, "")
	f.do("DELETE", "/templates/mine:v1", "").want(t, "delete the snapshot", 204, "")
	if got := undrainable(); !strings.Contains(got, `"undrainable":[]`) || !strings.Contains(got, `"safe":true`) {
		t.Errorf("undrainable after everything was deleted: %s", got)
	}
	f.do("GET", "/v1/hosts/unknown/undrainable", "").wantError(t, "undrainable of an unknown host", 404)
	f.do("GET", "/v1/hosts/h1/undrainable", "", "X-Api-Key", bobKey).wantError(t, "a tenant", 403)
	f.do("POST", "/v1/hosts/h1/undrain", "").want(t, "undrain", 204, "")
	if got := state(); got != "alive" {
		t.Errorf("after undrain: %s", got)
	}
	f.do("POST", "/v1/hosts/unknown/drain", "").wantError(t, "drain of an unknown host", 404)
	f.do("POST", "/v1/hosts/a.b*/drain", "").wantError(t, "drain of an invalid name", 400)
}

// A starting host is distinguished from a draining one: it will accept sandboxes.
func TestStartingHostOnTheWire(t *testing.T) {
	f := newFixture(t)
	lease := fleet.Lease{Host: "h2", Epoch: 1, TTL: time.Hour, Capacity: 1, Draining: true, Starting: true}
	if _, err := f.log.PutLease(t.Context(), lease, 0); err != nil {
		t.Fatal(err)
	}
	if a := f.do("GET", "/v1/hosts", "").want(t, "hosts", 200, ""); !strings.Contains(a.body, `"name":"h2","state":"starting"`) {
		t.Errorf("hosts: %s", a.body)
	}
	if a := f.do("GET", "/v1/hosts/h2/undrainable", "").want(t, "undrainable", 200, ""); !strings.Contains(a.body, `"state":"starting"`) || !strings.Contains(a.body, `"safe":false`) {
		t.Errorf("undrainable: %s", a.body)
	}
	body := f.do("GET", "/metrics", "", "X-Api-Key", "").want(t, "metrics", 200, "").body
	for _, line := range []string{`millrace_hosts{state="starting"} 1`, `millrace_hosts{state="draining"} 0`} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}
