package session_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/services/gateway/internal/backendai/session"
)

func TestCheckName(t *testing.T) {
	for name, want := range map[string]bool{
		"abcd": true, "a_b-c.d": true, "_abc": true, strings.Repeat("a", 64): true,
		"": false, "abc": false, strings.Repeat("a", 65): false, "-abc": false, "abc.": false, "abc-": false, "a*cd": false, "a>cd": false,
		"abcdé": false, "ab cd": false, "abcd\n": false, "../ab": false,
	} {
		if err := session.CheckName(name); (err == nil) != want || err != nil && kind.Code(err) != session.BadParams {
			t.Errorf("%q: %v, want ok %v", name, err, want)
		}
	}
}

// B-011: a UUID and the id of its sandbox stand for each other.
func TestUUID(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []sandbox.ID{"i00000000000000000000", "izzzzzzzzzzzzzzzzzzzz", "i0123456789abcdefghij", sandbox.NewID(), sandbox.NewID()} {
		u := session.UUID(id)
		if len(u) != 36 || u[14] != '8' || seen[u] {
			t.Errorf("%s: %s", id, u)
		}
		seen[u] = true
		for _, form := range []string{u, strings.ReplaceAll(u, "-", ""), strings.ToUpper(u)} {
			if got, ok := session.ParseUUID(form); got != id || !ok {
				t.Errorf("%s: %s, %v; want %s", form, got, ok, id)
			}
		}
		if _, ok := session.ParseUUID(u[:35] + "1"); ok {
			t.Errorf("another UUID than %s stands for %s", u, id)
		}
	}
	for _, s := range []string{"", "abcd", "ffffffff-ffff-80ff-80ff-ffffffffff00", strings.Repeat("f", 32), strings.Repeat("0", 32)} {
		if id, ok := session.ParseUUID(s); ok {
			t.Errorf("%q: %s", s, id)
		}
	}
	if session.UUID("i1") != "" {
		t.Error("an id of another length has a UUID")
	}
}

// B-022: bodies of all versions of the API.
func TestDecode(t *testing.T) {
	two, mib := 2.0, int64(512)
	for body, want := range map[string]session.Wanted{
		`{"lang":"python:3.6","clientSessionToken":"name1","tag":null,"config":{"mounts":[],"environ":null,"clusterSize":1,"instanceMemory":512,"instanceCores":2,"instanceGPUs":0,"instanceTPUs":0}}`: {Name: "name1", Image: "python:3.6", CPUs: &two, MemoryMiB: &mib, Reuse: true},
		`{"image":"base","clientSessionToken":"name1","config":{"resources":{"cpu":"2","mem":"512m"},"environ":{"A":"b"}}}`:                                                                            {Name: "name1", Image: "base", CPUs: &two, MemoryMiB: &mib, Reuse: true, Env: map[string]string{"A": "b"}},
		`{"image":"base","name":"name1","tag":"t","reuseIfExists":false,"enqueueOnly":true,"maxWaitSeconds":3,"type":"interactive","startupCommand":null,"cluster_size":1,"cluster_mode":"single-node","starts_at":null,"domain":"default","group":"default","config":{"resources":{"cpu":2,"mem":"0.5g","cuda.device":"0"},"resource_opts":{"shmem":"64m"},"scalingGroup":null,"mount_map":{}}}`: {Name: "name1", Image: "base", Tag: "t", CPUs: &two, MemoryMiB: &mib, Enqueue: true, MaxWait: 3 * time.Second},
		`{"image":"base","session_name":"name1"}`: {Name: "name1", Image: "base", Reuse: true},
		`{"image":"base","sessionName":"name1"}`:  {Name: "name1", Image: "base", Reuse: true},
	} {
		got, err := session.Decode([]byte(body))
		if err != nil || got.Name != want.Name || got.Image != want.Image || got.Tag != want.Tag || got.Reuse != want.Reuse || got.Enqueue != want.Enqueue || got.MaxWait != want.MaxWait || got.Env["A"] != want.Env["A"] {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
		if (got.CPUs == nil) != (want.CPUs == nil) || got.CPUs != nil && (*got.CPUs != two || *got.MemoryMiB != mib) {
			t.Errorf("%s: resources %v, %v", body, got.CPUs, got.MemoryMiB)
		}
	}
	for body, want := range map[string]string{
		``: session.BadParams, `[]`: session.BadParams, `{}`: session.BadParams,
		`{"name":"name1"}`:                                                         session.BadParams,
		`{"image":"base"}`:                                                         session.BadParams,
		`{"image":1,"name":"name1"}`:                                               session.BadParams,
		`{"image":"base","name":"x"}`:                                              session.BadParams,
		`{"image":"base","name":"name1","clusterSize":2}`:                          session.BadParams,
		`{"image":"base","name":"name1","type":"batch"}`:                           session.BadParams,
		`{"image":"base","name":"name1","type":"batch","startupCommand":""}`:       session.BadParams,
		`{"image":"base","name":"name1","type":"inference"}`:                       session.BadParams,
		`{"image":"base","name":"name1","type":1}`:                                 session.BadParams,
		`{"image":"base","name":"name1","maxWaitSeconds":-1}`:                      session.BadParams,
		`{"image":"base","name":"name1","config":{"resources":{"cuda.device":1}}}`: session.BadParams,
		`{"image":"base","name":"name1","config":{"resources":{"mem":"lots"}}}`:    session.BadParams,
		`{"image":"base","name":"name1","config":{"resources":{"mem":"1e300"}}}`:   session.BadParams,
		`{"image":"base","name":"name1","config":{"environ":{"A=B":"x"}}}`:         session.BadParams,
		`{"image":"base","name":"name1","config":{"environ":{"A":1}}}`:             session.BadParams,
		`{"image":"base","name":"name1","config":{"mounts":["data"]}}`:             session.NotFound,
	} {
		if got, err := session.Decode([]byte(body)); err == nil || kind.Code(err) != want {
			t.Errorf("%s: %+v, %v; want %s", body, got, err, want)
		}
	}
}

func TestLanguageOf(t *testing.T) {
	for image, want := range map[string]string{
		"base": "bash", "python": "python", "python:3.6-ubuntu18.04": "python", "cr.backend.ai/stable/python-ff:20.09": "python", "code-interpreter": "python",
		"r": "r", "lablup/r-base:3.5": "r", "rust:1": "bash", "java:8": "java", "javascript": "javascript", "nodejs:10": "javascript", "typescript": "typescript",
	} {
		if got := session.LanguageOf(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	started := time.Now()
	for want, st := range map[string]sandbox.State{
		"PENDING": {Phase: sandbox.PhaseQueued}, "PREPARING": {Phase: sandbox.PhasePlaced}, "RUNNING": {Phase: sandbox.PhaseRunning, Started: started},
		"TERMINATING": {Phase: sandbox.PhaseStopping, Started: started}, "TERMINATED": {Phase: sandbox.PhaseDestroyed, Started: started},
		"CANCELLED": {Phase: sandbox.PhaseRefused}, "ERROR": {Phase: sandbox.PhaseLost, Started: started},
	} {
		if got := session.Status(&st); got != want {
			t.Errorf("%s: %s, want %s", st.Phase, got, want)
		}
	}
}
