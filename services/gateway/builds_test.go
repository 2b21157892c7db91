package gateway_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/eventstest"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway"
)

// requestedBuild is a requested build.
type requestedBuild struct {
	Template string   `json:"templateID"`
	Build    string   `json:"buildID"`
	Tags     []string `json:"tags"`
	Names    []string `json:"names"`
}

func (r *requestedBuild) at() string { return "/templates/" + r.Template + "/builds/" + r.Build }

// buildStatus is the status of a build.
type buildStatus struct {
	Status  string `json:"status"`
	Entries []struct {
		Message string `json:"message"`
		Level   string `json:"level"`
	} `json:"logEntries"`
	Reason *struct {
		Message string `json:"message"`
		Step    string `json:"step"`
	} `json:"reason"`
}

func (f *fixture) request(name string) (r requestedBuild) {
	f.t.Helper()
	f.do("POST", "/v3/templates", `{"name":"`+name+`"}`).want(f.t, name, 202, "").decode(f.t, &r)
	return r
}

// awaitBuild waits for the end of a build.
func (f *fixture) awaitBuild(r *requestedBuild) (s buildStatus) {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		s = buildStatus{}
		f.do("GET", r.at()+"/status", "").want(f.t, "status", 200, "").decode(f.t, &s)
		if s.Status == "ready" || s.Status == "error" {
			return s
		}
		if time.Now().After(end) {
			f.t.Fatalf("the build did not end: %+v", s)
		}
	}
}

func TestBuildLogReadsFromAnyOffset(t *testing.T) {
	f := newFixture(t)
	r := f.request("app")
	words := make([]string, 250)
	for i := range words {
		words[i] = fmt.Sprintf("line-%d", i)
	}
	steps := `{"fromTemplate":"base","steps":[{"type":"RUN","args":["echo ` + strings.Join(words, " ") + `"]},{"type":"ENV","args":["A","1"]}]}`
	f.do("POST", "/v2"+r.at(), steps).want(t, "start", 202, "")
	f.do("POST", "/v2"+r.at(), steps).wantError(t, "start again", 409)
	if s := f.awaitBuild(&r); s.Status != "ready" || s.Reason != nil {
		t.Fatalf("%+v", s)
	}
	page := func(offset int) (s buildStatus) {
		f.do("GET", fmt.Sprintf("%s/status?logsOffset=%d", r.at(), offset), "").want(t, "page", 200, "").decode(t, &s)
		return s
	}
	var all []string
	for {
		s := page(len(all))
		if len(s.Entries) == 0 {
			break
		}
		if len(s.Entries) > 100 {
			t.Fatalf("%d entries in one answer", len(s.Entries))
		}
		for _, e := range s.Entries {
			all = append(all, e.Message)
		}
	}
	if len(all) != 253 { // before them: FROM and RUN, after them the end
		t.Fatalf("%d lines: %q", len(all), all)
	}
	for i, w := range words {
		if want := "[builder 1/2] [stdout]: " + w; all[i+2] != want {
			t.Errorf("line %d is %q, want %q", i+2, all[i+2], want)
		}
	}
	for _, offset := range []int{1, 99, 100, 101, 252} {
		if s := page(offset); s.Entries[0].Message != all[offset] {
			t.Errorf("from %d on: %q, want %q", offset, s.Entries[0].Message, all[offset])
		}
	}
	var logs struct {
		Logs []struct{ Message string } `json:"logs"`
	}
	f.do("GET", r.at()+"/logs?direction=backward&limit=2", "").want(t, "logs", 200, "").decode(t, &logs)
	if len(logs.Logs) != 2 || logs.Logs[0].Message != all[252] || logs.Logs[1].Message != all[251] {
		t.Errorf("backward: %+v", logs)
	}

	m := f.create(`{"templateID":"app"}`)
	st, _ := f.view.Sandbox(sandbox.ID(m.ID))
	env, err := st.Request.OpenEnv(eventstest.Ring(t, f.log), st.Tenant, m.ID)
	if st.Request.Built != r.Template || st.Request.Template != "base" || st.Request.From == "" || env["A"] != "1" || err != nil {
		t.Errorf("sandbox of the template: %+v", st.Request)
	}
	var list []map[string]any
	f.do("GET", "/templates", "").want(t, "list", 200, "").decode(t, &list)
	if len(list) != 1 || list[0]["templateID"] != r.Template || list[0]["buildID"] != r.Build || fmt.Sprint(list[0]["names"]) != "[app]" {
		t.Errorf("list: %v", list)
	}
	var sandboxes []map[string]any
	f.do("GET", "/v2/sandboxes", "").want(t, "sandboxes", 200, "").decode(t, &sandboxes)
	if len(sandboxes) != 1 {
		t.Errorf("the build's own sandboxes are listed: %v", sandboxes)
	}
	var shown struct {
		Builds []struct {
			BuildID, Status string
		}
	}
	f.do("GET", "/templates/app", "").want(t, "show", 200, "").decode(t, &shown)
	if len(shown.Builds) != 1 || shown.Builds[0].BuildID != r.Build || shown.Builds[0].Status != "ready" {
		t.Errorf("shown: %+v", shown)
	}
}

// A command may print more at once than a message of the build's record holds.
func TestBuildLogTakesManyLinesAtOnce(t *testing.T) {
	f := newFixture(t)
	r := f.request("app")
	const lines = 49_000
	f.do("POST", "/v2"+r.at(), fmt.Sprintf(`{"fromTemplate":"base","steps":[{"type":"RUN","args":["lines %d"]}]}`, lines)).want(t, "start", 202, "")
	if s := f.awaitBuild(&r); s.Status != "ready" {
		t.Fatalf("%s %+v", s.Status, s.Reason)
	}
	var s buildStatus
	f.do("GET", fmt.Sprintf("%s/status?logsOffset=%d", r.at(), lines+1), "").want(t, "page", 200, "").decode(t, &s)
	if len(s.Entries) != 2 || s.Entries[0].Message != "[builder 1/1] [stdout]: x" || s.Entries[1].Message != "Build finished" {
		t.Errorf("last lines: %+v", s.Entries)
	}
}

// A gateway that shuts down leaves its builds to the others, which follow the same running
// command.
func TestBuildSurvivesItsGateway(t *testing.T) {
	f := newFixture(t)
	r := f.request("app")
	f.do("POST", "/v2"+r.at(), `{"fromTemplate":"base","steps":[{"type":"RUN","args":["sleep"]}]}`).want(t, "start", 202, "")
	var sbx sandbox.ID
	running := func() bool {
		for _, s := range f.view.Sandboxes(func(s *sandbox.State) bool { return s.Request.Build == r.Build }) {
			sbx = s.ID
		}
		ps := f.view.Processes(sbx, allProcesses)
		return len(ps) == 1 && ps[0].PID != 0
	}
	for end := time.Now().Add(30 * time.Second); !running(); {
		if time.Now().After(end) {
			t.Fatal("the step did not start")
		}
		f.view.Sync(t.Context())
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	f.serve(gateway.Config{Listen: "127.0.0.1:0"})
	p := f.view.Processes(sbx, allProcesses)[0]
	f.do("POST", "/process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, p.PID),
		"E2b-Sandbox-Id", string(sbx), "Content-Type", "application/json").want(t, "kill", 200, "")
	s := f.awaitBuild(&r)
	if s.Status != "error" || s.Reason == nil || s.Reason.Step != "1" || !strings.Contains(s.Reason.Message, "signal") {
		t.Errorf("%+v %+v", s, s.Reason)
	}
	if n := f.host.Starts(p.ID); n != 1 {
		t.Errorf("the step was started %d times", n)
	}
	f.do("GET", "/templates/aliases/app", "").wantError(t, "the template of a failed build", 404)
}

func TestBuildsRejectBadRequests(t *testing.T) {
	f := newFixture(t)
	r := f.request("app:v1")
	if fmt.Sprint(r.Tags, r.Names) != "[v1] [app]" {
		t.Errorf("%+v", r)
	}
	bob := []string{"X-Api-Key", bobKey}
	sum := strings.Repeat("a", 64)
	start := "/v2" + r.at()
	for name, body := range map[string]string{
		"no body": "", "no JSON": "{", "a list": "[]", "no name": "{}", "a name of another kind": `{"name":1}`, "an invalid name": `{"name":"A b"}`,
		"a path": `{"name":"../x"}`, "the host's files": `{"name":"base"}`, "an id": `{"name":"` + r.Template + `"}`, "a bad tag": `{"name":"a","tags":["*"]}`,
		"two tags": `{"name":"a:b:c"}`, "no CPU": `{"name":"a","cpuCount":0}`, "much memory": `{"name":"a","memoryMB":99999999999}`,
	} {
		f.do("POST", "/v3/templates", body).wantError(t, name, 400)
	}
	for name, body := range map[string]string{
		"no base": `{}`, "two bases": `{"fromImage":"a","fromTemplate":"b"}`, "an unknown step": `{"fromImage":"a","steps":[{"type":"ADD","args":["x"]}]}`,
		"a copy without files": `{"fromImage":"a","steps":[{"type":"COPY","args":["x","y"]}]}`, "no arguments": `{"fromImage":"a","steps":[{"type":"RUN"}]}`,
		"arguments of another kind": `{"fromImage":"a","steps":[{"type":"RUN","args":"x"}]}`,
	} {
		f.do("POST", start, body).wantError(t, name, 400)
	}
	for _, registry := range []string{
		`{"type":"azure"}`, `{"type":"aws"}`, `{"type":"aws","awsAccessKeyId":"A","awsSecretAccessKey":"b"}`, `{"type":"aws","awsAccessKeyId":"A","awsRegion":"us-east-1"}`,
		`{"type":"aws","awsAccessKeyId":"A","awsSecretAccessKey":"b","awsRegion":"evil.test/"}`, `{"type":"aws","awsAccessKeyId":"A/../","awsSecretAccessKey":"b","awsRegion":"us-east-1"}`,
	} {
		f.do("POST", start, `{"fromImage":"a","fromImageRegistry":`+registry+`}`).wantError(t, registry, 400)
	}
	f.do("POST", start, `{"fromImage":"a"}`, bob...).wantError(t, "another's build", 404)
	f.do("GET", r.at()+"/status", "", bob...).wantError(t, "another's status", 400)
	f.do("GET", "/templates/"+r.Template+"/files/"+sum, "", bob...).wantError(t, "another's files", 404)
	f.do("GET", "/templates/app", "", bob...).wantError(t, "another's template", 404)
	f.do("GET", "/templates/other/builds/"+r.Build+"/status", "").wantError(t, "another template's build", 400)
	f.do("GET", "/templates/app/builds/..%2e/status", "").wantError(t, "no build", 400)
	f.do("GET", "/templates/app/builds/00000000-0000-0000-0000-000000000000/status", "").wantError(t, "unknown build", 400)
	f.do("GET", "/templates/app/builds/00000000-0000-0000-0000-000000000000/logs", "").wantError(t, "logs of an unknown build", 400)
	f.do("GET", r.at()+"/status?logsOffset=-1", "").wantError(t, "before the log", 400)
	f.do("GET", r.at()+"/status?limit=101", "").wantError(t, "too many lines", 400)
	f.do("GET", r.at()+"/status?level=loud", "").wantError(t, "no level", 400)
	f.do("GET", r.at()+"/logs?direction=up", "").wantError(t, "no direction", 400)
	for _, hash := range []string{"x", strings.Repeat("A", 64), sum + "0", "..%2e"} {
		f.do("GET", "/templates/"+r.Template+"/files/"+hash, "").wantError(t, "the hash "+hash, 400)
	}
	f.do("GET", "/templates/unknown/files/"+sum, "").wantError(t, "files of no template", 404)
	f.do("POST", "/templates/tags", `{"target":"app:v1","tags":["x"]}`).wantError(t, "tag an unbuilt template", 404)
	f.do("DELETE", "/templates/tags", `{"name":"app","tags":["x"]}`).wantError(t, "untag an unbuilt template", 404)
	f.do("GET", "/templates/app/tags", "").wantError(t, "tags of an unbuilt template", 404)
	f.do("DELETE", "/templates/app", "", bob...).wantError(t, "delete another's", 404)
	f.do("PATCH", "/v2/templates/app", `{}`, bob...).wantError(t, "change another's", 404)
	f.do("DELETE", "/templates/other", "").wantError(t, "delete an unknown template", 404)

	f.do("POST", start, `{"fromTemplate":"base","steps":[{"type":"COPY","args":["a","b"],"filesHash":"`+sum+`"}]}`).want(t, "start", 202, "")
	if s := f.awaitBuild(&r); s.Status != "error" || s.Reason == nil || s.Reason.Step != "1" || !strings.Contains(s.Reason.Message, "not stored") {
		t.Errorf("files that are not stored: %+v %+v", s, s.Reason)
	}
}

// A template without a successful build can be changed and deleted, and a running build ends
// with it.
func TestTemplateWithoutAGoodBuildCanBeDeleted(t *testing.T) {
	for _, tt := range []struct{ name, step, status string }{
		{"failed build", `{"type":"COPY","args":["a","b"],"filesHash":"` + strings.Repeat("a", 64) + `"}`, "error"},
		{"running build", `{"type":"RUN","args":["sleep"]}`, "building"},
		{"build that was not started", "", "waiting"},
		{"successful build", `{"type":"ENV","args":["A","1"]}`, "ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			r := f.request("app")
			if tt.step != "" {
				f.do("POST", "/v2"+r.at(), `{"fromTemplate":"base","steps":[`+tt.step+`]}`).want(t, "start", 202, "")
			}
			switch tt.status {
			case "building":
				f.awaitView(func() bool {
					return len(f.view.Sandboxes(func(s *sandbox.State) bool { return s.IsRunning() && s.Request.Build == r.Build })) > 0
				})
			case "error", "ready":
				if s := f.awaitBuild(&r); s.Status != tt.status {
					t.Fatalf("%+v", s)
				}
			}
			f.do("PATCH", "/v2/templates/"+r.Template, `{}`).want(t, "change", 200, `{"names":["app"]}`)
			f.do("DELETE", "/templates/"+r.Template, "").want(t, "delete", 204, "")
			for _, at := range []string{"/templates/app", "/templates/" + r.Template, "/templates/aliases/app"} {
				f.do("GET", at, "").wantError(t, at, 404)
			}
			f.do("GET", r.at()+"/status", "").wantError(t, "a deleted build", 400)
			f.do("DELETE", "/templates/app", "").wantError(t, "delete again", 404)
			f.awaitView(func() bool {
				return len(f.view.Sandboxes(func(s *sandbox.State) bool { return !s.Over() && s.Request.Build == r.Build })) == 0
			})
			again := f.request("app")
			f.do("POST", "/v2"+again.at(), `{"fromTemplate":"base","steps":[{"type":"ENV","args":["A","2"]}]}`).want(t, "start another", 202, "")
			if s := f.awaitBuild(&again); s.Status != "ready" {
				t.Errorf("new template of the same name: %+v", s)
			}
		})
	}
}

// A built template is private until its tenant publishes it, and that setting is deleted with
// the template.
func TestBuiltTemplatesArePrivate(t *testing.T) {
	f := newFixture(t)
	bob := []string{"X-Api-Key", bobKey}
	build := func() (public bool) {
		var r struct {
			requestedBuild
			Public bool `json:"public"`
		}
		f.do("POST", "/v3/templates", `{"name":"app"}`).want(t, "request", 202, "").decode(t, &r)
		f.do("POST", "/v2"+r.at(), `{"fromTemplate":"base","steps":[{"type":"ENV","args":["A","1"]}]}`).want(t, "start", 202, "")
		if s := f.awaitBuild(&r.requestedBuild); s.Status != "ready" {
			t.Fatalf("%+v", s)
		}
		return r.Public
	}
	shown := func(want bool) {
		t.Helper()
		var list []struct{ Public bool }
		f.do("GET", "/v2/templates", "").want(t, "list", 200, "").decode(t, &list)
		var one, alias struct{ Public bool }
		f.do("GET", "/templates/app", "").want(t, "show", 200, "").decode(t, &one)
		f.do("GET", "/templates/aliases/app", "").want(t, "alias", 200, "").decode(t, &alias)
		if len(list) != 1 || list[0].Public != want || one.Public != want || alias.Public != want {
			t.Errorf("list %v, template %v, alias %v: want %v", list, one, alias, want)
		}
	}
	if build() {
		t.Error("a new template is public")
	}
	shown(false)
	f.do("POST", "/sandboxes", `{"templateID":"app"}`, bob...).wantError(t, "another tenant's sandbox", 404)
	f.do("PATCH", "/templates/app", `{"public":true}`).want(t, "publish", 200, "")
	if shown(true); !build() {
		t.Error("a new build makes it private")
	}
	shown(true)
	f.do("POST", "/sandboxes", `{"templateID":"app"}`, bob...).want(t, "another tenant's sandbox of a public template", 201, "")
	f.do("PATCH", "/templates/app", `{"public":"yes"}`).wantError(t, "a value of another type", 400)
	f.do("DELETE", "/templates/app", "").want(t, "delete", 204, "")
	if build() {
		t.Error("another template of the name is public")
	}
	shown(false)
}

// The build of an image from AWS fetches the registry's password, and reports a refusal
// without disclosing the key. (Package builder tests the request and its signature.)
func TestBuildReportsECRRefusal(t *testing.T) {
	f := newFixture(t)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 10)
	ecr := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"UnrecognizedClientException","message":"`+r.Header.Get("Authorization")+`"}`)
	}))
	t.Cleanup(ecr.Close)
	f.serve(gateway.Config{Listen: "127.0.0.1:0", ECREndpoint: ecr.URL})
	r := f.request("app")
	f.do("POST", "/v2"+r.at(), `{"fromImage":"1.dkr.ecr.eu-west-1.amazonaws.com/x:1","fromImageRegistry":{"type":"aws","awsAccessKeyId":"AKIACANARY","awsSecretAccessKey":"canary","awsRegion":"eu-west-1"}}`).want(t, "start", 202, "")
	s := f.awaitBuild(&r)
	if s.Status != "error" || s.Reason == nil || s.Reason.Step != "base" || !strings.Contains(s.Reason.Message, "ECR in eu-west-1 refuses the access key") {
		t.Errorf("%+v %+v", s, s.Reason)
	}
	if by := <-asked; !strings.Contains(by, "Credential=AKIACANARY/") || !strings.Contains(by, "/eu-west-1/ecr/aws4_request") {
		t.Errorf("request signed with %q", by)
	}
	for _, at := range []string{"/status", "/logs"} {
		if a := f.do("GET", r.at()+at, ""); strings.Contains(strings.ToLower(a.body), "canary") {
			t.Errorf("%s contains the key: %s", at, a.body)
		}
	}
}

func TestTemplatesAndBuildsArePaged(t *testing.T) {
	f := newFixture(t)
	var builds []string
	for range 3 {
		r := f.request("app")
		builds = append([]string{r.Build}, builds...)
	}
	for _, name := range []string{"b", "c", "a"} {
		r := f.request(name)
		f.do("POST", "/v2"+r.at(), `{"fromTemplate":"base","steps":[{"type":"ENV","args":["A","1"]}]}`).want(t, "start", 202, "")
		if s := f.awaitBuild(&r); s.Status != "ready" {
			t.Fatalf("%+v", s)
		}
	}
	pages := func(path string, ids func(answer) []string) (all []string, sizes string) {
		t.Helper()
		for next := ""; ; {
			a := f.do("GET", path+"limit=2"+next, "").want(t, path, 200, "")
			got := ids(a)
			all, sizes = append(all, got...), sizes+fmt.Sprint(len(got))
			if a.header.Get("X-Next-Token") == "" {
				return all, sizes
			}
			next = "&nextToken=" + a.header.Get("X-Next-Token")
		}
	}
	got, sizes := pages("/templates/app?", func(a answer) (ids []string) {
		var one struct{ Builds []struct{ BuildID string } }
		a.decode(t, &one)
		for _, b := range one.Builds {
			ids = append(ids, b.BuildID)
		}
		return ids
	})
	if fmt.Sprint(got) != fmt.Sprint(builds) || sizes != "21" {
		t.Errorf("builds %v in pages of %s, want %v", got, sizes, builds)
	}
	f.create(`{"templateID":"c"}`)
	m := f.create(`{"templateID":"c"}`)
	f.do("DELETE", "/sandboxes/"+m.ID, "").want(t, "kill", 204, "")
	type spawned struct {
		Names         []string
		SpawnCount    int
		LastSpawnedAt *time.Time
	}
	var one spawned
	var list []spawned
	f.do("GET", "/templates/c", "").want(t, "show", 200, "").decode(t, &one)
	f.do("GET", "/templates", "").want(t, "list", 200, "").decode(t, &list)
	for _, s := range append(list, one) {
		want := 0
		if s.Names[0] == "c" {
			want = 2
		}
		if s.SpawnCount != want || (s.LastSpawnedAt != nil) != (want > 0) {
			t.Errorf("%+v, want %d", s, want)
		}
	}
	got, sizes = pages("/v2/templates?teamID=default&", func(a answer) (names []string) {
		var list []struct{ Names []string }
		a.decode(t, &list)
		for _, t := range list {
			names = append(names, t.Names...)
		}
		return names
	})
	if fmt.Sprint(got) != "[a c b]" || sizes != "21" {
		t.Errorf("templates %v in pages of %s", got, sizes)
	}
	for _, bad := range []string{"/v2/templates?limit=0", "/v2/templates?nextToken=%25", "/templates/app?limit=101"} {
		f.do("GET", bad, "").wantError(t, bad, 400)
	}
	for _, at := range []string{"/templates", "/v2/templates"} {
		f.do("GET", at+"?teamID=bob", "").wantError(t, "another team's", 400)
	}
	if a := f.do("DELETE", "/templates/none", ""); a.code != 404 || !strings.Contains(a.body, "template 'none' not found") {
		t.Errorf("delete nothing: %+v", a)
	}
}

// awaitView waits until a condition holds in the view.
func (f *fixture) awaitView(is func() bool) {
	f.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			f.t.Fatal("the condition was not met in time")
		}
		f.view.Sync(f.t.Context())
	}
}

func TestBuildUploadsAreChecked(t *testing.T) {
	f := newFixture(t)
	r := f.request("app")
	sum := strings.Repeat("a", 64)
	var link struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}
	ask := func() string {
		f.do("GET", "/templates/"+r.Template+"/files/"+sum, "").want(t, "link", 201, "").decode(t, &link)
		u, err := url.Parse(link.URL)
		if err != nil || u.Host != f.addr {
			t.Fatalf("%q: %v", link.URL, err)
		}
		return u.RequestURI()
	}
	at := ask()
	none := []string{"X-Api-Key", ""}
	content := func(name string) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Size: 2, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte("hi"))
		w.Close()
		return b.String()
	}
	good := content("a")
	f.do("PUT", strings.Replace(at, "signature=", "signature=0", 1), good, none...).wantError(t, "a wrong signature", 403)
	f.do("PUT", strings.Replace(at, "expires=", "expires=9", 1), good, none...).wantError(t, "a changed expiration", 403)
	f.do("PUT", strings.Replace(at, sum, strings.Repeat("b", 64), 1), good, none...).wantError(t, "another hash", 403)
	f.do("PUT", strings.Replace(at, sum, "x", 1), good, none...).wantError(t, "no hash", 400)
	for name, body := range map[string]string{
		"no tar": strings.Repeat("no tar ", 1000), "climbs": content("../a"), "absolute": content("/etc/passwd"), "climbs later": content("a/../../b"), "half": good[:300],
	} {
		f.do("PUT", at, body, none...).wantError(t, name, 400)
	}
	if ask(); link.Present {
		t.Error("a rejected upload is stored")
	}
	for range 2 {
		f.do("PUT", at, good, none...).want(t, "upload", 200, "")
	}
	if ask(); !link.Present {
		t.Error("the upload is not stored")
	}
	f.do("PUT", at, content("../a"), none...).wantError(t, "an invalid upload over it", 400)
	if ask(); !link.Present {
		t.Error("a rejected upload replaced the stored one")
	}
}

func allProcesses(*process.Summary) bool { return true }

// A build waits for capacity: a refused sandbox is requested again.
func TestBuildWaitsForCapacity(t *testing.T) {
	f := newFixture(t)
	r := f.request("app")
	f.host.SetRefuse(kind.Exhausted)
	f.do("POST", "/v2"+r.at(), `{"fromTemplate":"base","steps":[{"type":"RUN","args":["true"]}]}`).want(t, "start", 202, "")
	refused := func() bool {
		return len(f.view.Sandboxes(func(s *sandbox.State) bool { return s.Phase == sandbox.PhaseRefused })) > 0
	}
	for end := time.Now().Add(30 * time.Second); !refused(); {
		if time.Now().After(end) {
			t.Fatal("no sandbox was refused")
		}
		f.view.Sync(t.Context())
	}
	f.host.SetRefuse(0)
	if s := f.awaitBuild(&r); s.Status != "ready" {
		t.Errorf("%+v %+v", s, s.Reason)
	}
}
