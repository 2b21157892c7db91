package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway"
)

const inApp = "/v1/workspaces/my-app/default"

// uploadTo sends a file to a link.
func uploadTo(t *testing.T, url, data string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return exchange(t, req)
}

func exchange(t *testing.T, req *http.Request) (code int, body string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

func fetched(t *testing.T, url string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return exchange(t, req)
}

// link returns the URL in a response.
func (a answer) link(t *testing.T, what string) string {
	t.Helper()
	m := a.object(t, what, 200, "url", "expires_in")
	if m["expires_in"] != 3600.0 {
		t.Errorf("%s: %s", what, a.body)
	}
	return m["url"].(string)
}

// store uploads a file.
func (u *userFixture) store(token, path, data string) {
	u.t.Helper()
	url := u.as(token, "PUT", inApp+"/files/"+path, "").link(u.t, "upload "+path)
	if code, body := uploadTo(u.t, url, data); code != 200 {
		u.t.Fatalf("%s: %d %s", path, code, body)
	}
}

// E-355, E-356, E-358 to E-363: a file from its upload to its removal, at every gateway.
func TestWorkspaces(t *testing.T) {
	u := newUserFixture(t)
	token, bob := u.logIn("you@example.com"), u.logIn("bob@example.com")
	second := u.another(gateway.UsersConfig{})
	u.as(token, "GET", "/v1/workspaces", "").want(t, "no workspaces", 200, `{"workspaces":[]}`)
	u.as(token, "GET", inApp+"/usage", "").want(t, "no usage", 200, `{"total_size_mib":0,"file_count":0}`)
	u.as(token, "GET", inApp, "").want(t, "no files", 200, `{"files":[]}`)

	data := strings.Repeat("0123456789abcdef", 1<<16) + "end"
	u.store(token, "out/large.bin", data)
	u.store(token, "a%20b.txt", "old")
	u.store(token, "a%20b.txt", "new")
	second.as(token, "GET", "/v1/workspaces", "").want(t, "all", 200, fmt.Sprintf(`{"workspaces":[{"app_id":"my-app","capset_id":"default","size_bytes":%d}]}`, len(data)+3))
	m := second.as(token, "GET", inApp+"/usage", "").object(t, "usage", 200, "total_size_mib", "file_count")
	if m["file_count"] != 2.0 || m["total_size_mib"] != float64(len(data)+3)/(1<<20) {
		t.Errorf("%v", m)
	}
	for path, want := range map[string]string{"out/large.bin": data, "a%20b.txt": "new"} {
		path = inApp + "/files/" + path
		if code, body := fetched(t, second.as(token, "GET", path, "").link(t, path)); code != 200 || body != want {
			t.Errorf("%s by its link: %d, %d bytes", path, code, len(body))
		}
		a := second.do("GET", path, "", "X-Api-Key", "", "Authorization", "Bearer "+token, "Accept", "application/octet-stream")
		if a.code != 200 || a.body != want || a.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s as bytes: %d, %d bytes", path, a.code, len(a.body))
		}
		if a = u.as(token, "HEAD", path, ""); a.code != 200 {
			t.Errorf("HEAD %s: %d", path, a.code)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+u.addr+inApp+"/files/a%20b.txt?redirect=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if code, body := fetched(t, resp.Header.Get("Location")); resp.StatusCode != 302 || code != 200 || body != "new" {
		t.Errorf("%d to %q: %d %s", resp.StatusCode, resp.Header.Get("Location"), code, body)
	}

	for _, who := range []struct{ name, token, path string }{
		{"another user", bob, inApp}, {"another set", token, "/v1/workspaces/my-app/other"}, {"another application", token, "/v1/workspaces/other/default"},
	} {
		for _, r := range []string{"GET " + who.path + "/files/a%20b.txt", "DELETE " + who.path + "/files/a%20b.txt", "DELETE " + who.path} {
			method, path, _ := strings.Cut(r, " ")
			u.as(who.token, method, path, "").failed(t, who.name+": "+r, 404, "not_found")
		}
		u.as(who.token, "GET", who.path, "").want(t, who.name, 200, `{"files":[]}`)
	}
	u.as(bob, "GET", "/v1/workspaces", "").want(t, "another user's list", 200, `{"workspaces":[]}`)

	second.as(token, "DELETE", inApp+"/files/a%20b.txt", "").want(t, "delete a file", 200, `{"status":"deleted"}`)
	u.as(token, "DELETE", inApp+"/files/a%20b.txt", "").failed(t, "delete it again", 404, "not_found")
	u.as(token, "GET", inApp+"/files/a%20b.txt", "").failed(t, "read it", 404, "not_found")
	u.as(token, "DELETE", inApp, "").want(t, "delete all", 200, `{"status":"deleted"}`)
	second.as(token, "DELETE", inApp, "").failed(t, "delete all again", 404, "not_found")
	second.as(token, "GET", inApp, "").want(t, "no files", 200, `{"files":[]}`)
}

// E-357: pages of 20, with the paths relative to the workspace.
func TestWorkspacePages(t *testing.T) {
	u := newUserFixture(t)
	token := u.logIn("you@example.com")
	for n := range 45 {
		u.store(token, fmt.Sprintf("d/%02d.txt", n), "x")
	}
	next, got := "", []int{}
	for page := 0; page == 0 || next != ""; page++ {
		m := u.as(token, "GET", inApp+"?token="+next, "").object(t, "page", 200)
		files := m["files"].([]any)
		got = append(got, len(files))
		first := files[0].(map[string]any)
		if first["path"] != fmt.Sprintf("d/%02d.txt", 20*page) || first["size"] != 1.0 || !strings.HasSuffix(first["modified"].(string), "Z") || len(first) != 3 {
			t.Errorf("%v", first)
		}
		var more bool
		if next, more = m["next_token"].(string); more != (page < 2) {
			t.Errorf("page %d: next_token %v", page, m["next_token"])
		}
	}
	if fmt.Sprint(got) != "[20 20 5]" {
		t.Errorf("%v", got)
	}
	m := u.as(token, "GET", inApp+"/files?prefix=d/1&limit=3", "").object(t, "a prefix", 200, "files", "next_token")
	if files := m["files"].([]any); len(files) != 3 || files[0].(map[string]any)["path"] != "d/10.txt" {
		t.Errorf("%v", files)
	}
	for _, q := range []string{"limit=0", "limit=-1", "limit=x", "limit=1001", "limit=99999999999999999999", "token=x", "token=Li4", "token=%2e%2e"} {
		u.as(token, "GET", inApp+"?"+q, "").failed(t, q, 400, "invalid")
	}
}

// E-365: no path leaves a workspace, in no spelling.
func TestWorkspacePathsThatAreRejected(t *testing.T) {
	u := newUserFixture(t)
	token := u.logIn("you@example.com")
	for _, path := range []string{
		"", "/", "..", "../a", "a/..", "a/../../b", "./a", "a/.", "a//b", "/etc/passwd", "a/", "%2e%2e/a", "a/%2E%2e", "%2e", ".%2e/a",
		"a%2fb", "..%2Fa", "%2Fetc", "a%5cb", "a%00", "a%0ab", "a%7f", "a%ff", "%", "%zz", strings.Repeat("a", 256), strings.Repeat("a/", 512) + "b",
	} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			a := u.raw(t, method, inApp+"/files/"+path, token)
			list := strings.Trim(path, "/") == "" && (a == 200 && method == "GET" || a == 405 || a == 404) // of the whole workspace
			if a != 400 && !list {
				t.Errorf("%s %q: %d", method, path, a)
			}
		}
	}
	for _, ids := range []string{"../x", "%2e%2e/x", "a/..", "a/%2e%2e", "a%20b/x", "a*/x", ".a/x", "a/" + strings.Repeat("x", 129)} {
		for _, method := range []string{"GET", "DELETE"} {
			if a := u.raw(t, method, "/v1/workspaces/"+ids, token); a != 400 {
				t.Errorf("%s %q: %d", method, ids, a)
			}
		}
	}
	u.as(token, "GET", "/v1/workspaces", "").want(t, "nothing is stored", 200, `{"workspaces":[]}`)
}

// raw sends a request whose path no client library changes, and returns the status.
func (u *userFixture) raw(t *testing.T, method, path, token string) int {
	t.Helper()
	conn, err := net.Dial("tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, path, token)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %q: %v", method, path, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Links and uploads that are rejected, and one that breaks off: nothing is stored.
func TestWorkspaceUploadsThatAreRejected(t *testing.T) {
	u := newUserFixture(t)
	token, key := u.logIn("you@example.com"), u.signUp("you@example.com").APIKey
	u.store(token, "a", "old")
	put := u.as(token, "PUT", inApp+"/files/a", "{}").link(t, "upload")
	get := u.as(token, "GET", inApp+"/files/a", "").link(t, "download")
	for name, url := range map[string]string{"a download link": get, "a changed link": put + "0", "no token": "http://" + u.addr + "/v1/workspace-files/x"} {
		if code, body := uploadTo(t, url, "new"); code != 403 {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, _ := fetched(t, put); code != 403 {
		t.Errorf("read by an upload link: %d", code)
	}
	conn, path := u.open(t, put)
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n\r\n", path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 411 {
		t.Errorf("without a length: %+v, %v", resp, err)
	}
	conn.Close()
	conn, path = u.open(t, put) // sends a part of its body and waits
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", path, int64(5<<30+1))
	if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	resp, err = http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 413 {
		t.Errorf("beyond the limit: %+v, %v", resp, err)
	}
	conn.Close()
	conn, path = u.open(t, put)
	fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nnew", path)
	conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, conn)
	conn.Close()
	u.as(token, "PUT", inApp+"/files/a", "new").failed(t, "bytes in the first request", 400, "invalid")
	u.as(key, "GET", inApp, "").failed(t, "a key", 401, "unauthenticated")
	u.as("", "GET", inApp+"/files/a", "").failed(t, "no credential", 401, "unauthenticated")
	if code, body := fetched(t, get); code != 200 || body != "old" {
		t.Errorf("%d %q", code, body)
	}
}

// open returns a connection to the gateway, and the path of a URL.
func (u *userFixture) open(t *testing.T, url string) (conn net.Conn, path string) {
	t.Helper()
	conn, err := net.Dial("tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ = strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return conn, "/" + path
}
