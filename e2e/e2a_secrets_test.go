package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// docs/e2a-secrets.md, word for word (E-310, E-318, E-319, E-320, E-327).
func TestE2ASecretsDocs(t *testing.T) {
	t.Parallel()
	u := sharedUp(t)
	raw, err := os.ReadFile("../docs/e2a-secrets.md")
	must(t, err)
	r := &docsReader{string(raw), []string{"API=" + u.URL, "KEY=" + u.Key, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
	for i, want := range [][]string{
		{`{"name":"my-llm-keys","key_names":["LLM_API_KEY","OTHER_KEY"],"created_at":"`},
		{`{"bundles":[{"name":"my-llm-keys","key_names":["LLM_API_KEY","OTHER_KEY"],"created_at":"`, `{"name":"my-llm-keys","key_names":["LLM_API_KEY","OTHER_KEY"],"created_at":"`},
		{`{"name":"my-llm-keys","key_names":["LLM_API_KEY"],"last_rotated_at":"`},
		{`{"status":"deleted"}`},
	} {
		out := r.follow(t, "From a creation to a deletion", i)
		if len(out) != len(want) {
			t.Fatalf("block %d: %q", i, out)
		}
		for j := range out {
			if !strings.HasPrefix(out[j], want[j]) {
				t.Errorf("block %d: %s", i, out[j])
			}
		}
	}
}

const secretsPath = "/v1/tenants/me/secrets"

// E-312, E-317, E-330: of 1,000 values in bundles, and of others in rejected requests, none is in the store,
// in logs, metrics or answers, before and after a crash.
func TestSecretBundlesAreSealed(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{})
	p := &planter{newCanaries(), t, u.API}
	bearer := []string{"Authorization", "Bearer " + u.Key, "X-Api-Key", ""}
	want := func(code int, method, path string, body any) {
		t.Helper()
		if a := p.do(method, path, body, bearer...); a.Status != code {
			t.Fatalf("%s %s: %v, want %d", method, path, a, code)
		}
	}
	for i := range 10 {
		want(http.StatusCreated, "POST", secretsPath, map[string]any{"name": fmt.Sprint("b", i), "values": p.env(50)})
		want(http.StatusOK, "PUT", fmt.Sprint(secretsPath, "/b", i), map[string]any{"values": p.env(50)})
	}
	want(http.StatusConflict, "POST", secretsPath, map[string]any{"name": "b1", "values": p.env(2)})
	for _, values := range []any{
		p.env(51), map[string]any{"A": []string{p.next()}}, map[string]string{p.next(): "x"}, map[string]string{"TASK": p.next()}, p.next(), map[string]string{"A": p.next() + strings.Repeat("x", 1<<16)},
	} {
		want(http.StatusBadRequest, "POST", secretsPath, map[string]any{"name": "bad", "values": values})
		want(http.StatusBadRequest, "PUT", secretsPath+"/b1", map[string]any{"values": values})
	}
	want(http.StatusBadRequest, "POST", secretsPath, `{"name":"bad","values":{"A":`+p.next()+`}}`)
	want(http.StatusBadRequest, "POST", secretsPath, map[string]any{"name": p.next() + "!", "values": p.env(1)})
	want(http.StatusNotFound, "PUT", secretsPath+"/none", map[string]any{"values": p.env(1)})
	want(http.StatusNotFound, "POST", "/v1/tenants/you/secrets?"+p.next(), map[string]any{"values": p.env(1)})
	reads := func() {
		t.Helper()
		for _, path := range []string{secretsPath, secretsPath + "/b1", "/v1/audit", "/metrics"} {
			want(http.StatusOK, "GET", path, nil)
		}
		if a := p.do("GET", secretsPath, nil, bearer...); strings.Count(string(a.Body), `"last_rotated_at"`) != 10 {
			t.Errorf("bundles: %v", a)
		}
	}
	reads()
	p.nowhere(t, u, "at run time")
	u.Kill9()
	must(t, u.Restart())
	reads()
	want(http.StatusOK, "DELETE", secretsPath+"/b1", nil)
	must(t, u.Term())
	p.nowhere(t, u, "afterwards")
	must(t, u.Restart())
	if p.made < 1000 {
		t.Errorf("%d secrets, want 1000", p.made)
	}
}

// E-012, E-208, E-321, E-324, E-325: a rotation reaches a running conversation at another gateway.
func TestRotationReachesConversations(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2})
	a, b := s.APIs[0], s.APIs[1]
	bundle := func(method, path, values string, status int) rig.Answer {
		return a.Want(t, status, method, secretsPath+path, json.RawMessage(values), "Authorization", "Bearer "+a.Key)
	}
	bundle("POST", "", `{"name":"llm","values":{"LLM_API_KEY":"first","OTHER":"o"}}`, 201)
	c := converse(t, a, "/v1/sessions", `{"template":"standard","llm":{"vendor":"openai"},"user_id":"you","secrets":["llm"]}`, 201)
	k := talkTo(t, b, &c, "")
	if got := k.run("echo $LLM_API_KEY $OTHER"); got != "first o\n" {
		t.Errorf("before: %q", got)
	}
	var put struct{ Pending []string }
	bundle("PUT", "/llm", `{"values":{"LLM_API_KEY":"second","ADDED":"a"}}`, 200).Decode(t, &put)
	if len(put.Pending) > 0 {
		t.Errorf("pending: %v", put.Pending)
	}
	f, err := k.read()
	must(t, err)
	if f.Event != "config_update" || !slices.Equal(f.Keys, []string{"ADDED", "LLM_API_KEY"}) {
		t.Errorf("the client got %+v", f)
	}
	if got := k.run("echo $LLM_API_KEY $OTHER $ADDED"); got != "second a\n" {
		t.Errorf("after: %q", got)
	}
}
