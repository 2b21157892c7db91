package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// links is a fake gateway with two links, which records other requests.
func links(t *testing.T) (env map[string]string, requests *[]string) {
	t.Helper()
	requests = new([]string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.Method + " " + r.URL.Path {
		case "GET /v1/shares":
			io.WriteString(w, `[{"id":"s1","process":"01-iabc","seq":7,"created":"2026-01-02T03:04:05Z","expires":"2026-01-03T03:04:05Z"},{"id":"t2","sandbox":"iabc","created":"2026-01-02T03:04:05Z","expires":"2026-01-03T03:04:05Z"}]`)
			return
		case "DELETE /v1/shares/s", "DELETE /v1/shares/none":
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"message":"link not found"}`)
			return
		case "POST /v1/shares":
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"id":"s3","token":"secret","url":"/#/s/secret","process":"01-iabc","expires":"2026-01-03T03:04:05Z"}`)
		}
		*requests = append(*requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+string(body)))
	}))
	t.Cleanup(srv.Close)
	return map[string]string{"MILLRACE_URL": srv.URL, "MILLRACE_API_KEY": "e2b_00", "HOME": t.TempDir()}, requests
}

func TestShare(t *testing.T) {
	for args, want := range map[string]string{
		"create 01-iabc":                       `POST /v1/shares {"process":"01-iabc"}`,
		"create 01-iabc --seq 7 --expires 36h": `POST /v1/shares {"process":"01-iabc","seq":7,"expires":"36h0m0s"}`,
		"create iabc --sandbox":                `POST /v1/shares {"sandbox":"iabc"}`,
		"rm s1 t2":                             "DELETE /v1/shares/s1 DELETE /v1/shares/t2",
		"rm s":                                 "DELETE /v1/shares/s1", // a prefix
		"rm none":                              "",
		"create iabc --sandbox --seq 7":        "",
		"create":                               "",
		"create 01-iabc --expires tomorrow":    "",
	} {
		env, requests := links(t)
		got := verb(t, env, nil, append([]string{"share"}, strings.Fields(args)...)...)
		if sent := strings.Join(*requests, " "); sent != want || (got.code == 0) != (want != "") {
			t.Errorf("%s: exit %d %q, sent %q, want %q", args, got.code, got.errOut+got.say, sent, want)
		}
	}
}

func TestShareOutput(t *testing.T) {
	env, _ := links(t)
	link := env["MILLRACE_URL"] + "/#/s/secret\n"
	if got := verb(t, env, nil, "share", "create", "01-iabc"); got.out != link || strings.Contains(got.errOut, "secret") {
		t.Errorf("create: %q %q, want %q", got.out, got.errOut, link)
	}
	var made map[string]any
	got := verb(t, env, nil, "share", "create", "01-iabc", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &made); err != nil || made["url"].(string)+"\n" != link || made["token"] != "secret" {
		t.Errorf("create --json: %q, %v", got.out, err)
	}
	table := verb(t, env, nil, "share", "ls").out
	for _, want := range []string{"s1", "01-iabc", " 7 ", "t2", " iabc ", " all ", "2026-01-03T03:04:05.000Z"} {
		if !strings.Contains(table, want) {
			t.Errorf("ls has no %q: %s", want, table)
		}
	}
}
