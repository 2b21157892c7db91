package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// spellings returns paths that lead, or seem to lead, from a directory to a file of the
// host.
func spellings(file string) []string {
	up := strings.Repeat("../", 30)
	out := []string{
		file, up + file[1:], "/tmp/" + up + file[1:], "/proc/self/root" + file, "/proc/1/root" + file, "/proc/self/cwd/" + up + file[1:],
		"//" + file, "/./" + file, "/tmp/x/.." + file, "~/" + up + file[1:], strings.ReplaceAll(up+file[1:], "/", "\\"),
		strings.ReplaceAll(up, "../", "....//") + file[1:], strings.ReplaceAll(up, "../", "..%2f") + file[1:],
		url.QueryEscape(up + file[1:]), strings.ReplaceAll(up, ".", "%2e") + file[1:], strings.ReplaceAll(up, ".", "\u2024") + file[1:],
		"file://" + file, file + "/", file + "/.", file + "\x00.txt", "/dev/fd/../../../.." + file,
	}
	return out
}

// No spelling of a path leads to a file of the host, and every response is one that the SDK
// understands. Covers T-91, T-94 and T-110.
func TestPathsStayInTheSandbox(t *testing.T) {
	onlySandboxed(t)
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	host := filepath.Join(t.TempDir(), "host.txt")
	if err := os.WriteFile(host, []byte("the host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	in := []string{"E2b-Sandbox-Id", box.ID}
	var v struct{ VolumeID, Token string }
	a.Want(t, 201, "POST", "/volumes", map[string]string{"name": fmt.Sprintf("paths%d", os.Getpid())}).Decode(t, &v)
	defer a.Do(t, "DELETE", "/volumes/"+v.VolumeID, nil)
	volume := "/volumecontent/" + v.VolumeID
	for _, p := range spellings(host) {
		q := "path=" + url.QueryEscape(p)
		type request struct {
			method, path string
			body         any
			headers      []string
		}
		all := []request{
			{http.MethodGet, "/files?" + q, nil, in},
			{http.MethodPost, "/files?" + q, []byte("ours"), append([]string{"Content-Type", octets}, in...)},
			{http.MethodPost, "/files/compose", map[string]any{"source_paths": []string{p}, "destination": p + "x"}, in},
		}
		bearer := []string{"Authorization", "Bearer " + v.Token, "X-Api-Key", ""}
		for _, r := range []request{
			{http.MethodGet, "/path", nil, nil}, {http.MethodGet, "/file", nil, nil}, {http.MethodGet, "/dir", nil, nil},
			{http.MethodPut, "/file", []byte("ours"), []string{"Content-Type", octets}}, {http.MethodPost, "/dir", nil, nil},
			{http.MethodPatch, "/path", map[string]int{"mode": 0o777}, nil}, {http.MethodDelete, "/path", nil, nil},
		} {
			all = append(all, request{r.method, volume + r.path + "?" + q, r.body, append(r.headers, bearer...)})
		}
		for _, m := range []string{"Stat", "MakeDir", "ListDir", "Write", "CreateWatcher", "Remove"} {
			all = append(all, request{http.MethodPost, fsService + m, map[string]string{"path": p, "data": "b3Vycw=="}, append([]string{"Content-Type", "application/json"}, in...)})
		}
		all = append(all, request{http.MethodPost, fsService + "Move", map[string]string{"source": p, "destination": "/tmp/stolen"}, append([]string{"Content-Type", "application/json"}, in...)})
		for _, r := range all {
			ans := a.Do(t, r.method, r.path, r.body, r.headers...)
			if ans.Status >= 500 || strings.Contains(string(ans.Body), "the host's") {
				t.Errorf("%q: %s %s: %.200v", p, r.method, r.path, ans)
			}
		}
	}
	if got, err := os.ReadFile(host); string(got) != "the host's" {
		t.Errorf("the host's file is %q, %v", got, err)
	}
	if st, err := os.Stat(host); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", st, err)
	}
	if left, err := os.ReadDir(filepath.Dir(host)); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
}
