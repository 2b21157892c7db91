package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// quiet is the silence after a response that raw takes for the end of all responses.
const quiet = time.Second

// raw sends bytes unchanged and returns the status of each response until the gateway closes
// the connection or sends nothing more.
func (f *fixture) raw(t *testing.T, request string) (codes []int, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for wait := maxAnswerTime; ; wait = quiet {
		conn.SetReadDeadline(time.Now().Add(wait))
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			ne, ok := err.(net.Error) //nolint:errorlint // ReadResponse returns it unwrapped
			return codes, !ok || !ne.Timeout()
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		codes = append(codes, resp.StatusCode)
	}
}

// Requests that a proxy in front may read differently are rejected, and nothing that follows
// on the connection is executed.
func TestSmuggling(t *testing.T) {
	f := newFixture(t)
	const next = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	post := func(version, headers, body string) string {
		return "POST /livez " + version + "\r\nHost: x\r\n" + headers + "\r\n" + body
	}
	tests := []struct{ name, request string }{
		{"HTTP/1.0 with chunked", post("HTTP/1.0", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n")},
		{"signed length", post("HTTP/1.1", "Content-Length: +5\r\n", "hello")},
		{"chunked and identity", post("HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n")},
		{"chunked twice", post("HTTP/1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")},
		{"line feed in a chunk extension", post("HTTP/1.1", "Transfer-Encoding: chunked\r\n", "1;a\nb\r\nx\r\n0\r\n\r\n")},
		{"NUL in a header", post("HTTP/1.1", "X: a\x00b\r\n", "")},
		{"bare carriage return", post("HTTP/1.1", "X: a\rb\r\n", "")},
		{"no host", "GET /livez HTTP/1.1\r\n\r\n"},
		{"two hosts", "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
		{"identity and length", post("HTTP/1.1", "Transfer-Encoding: identity\r\nContent-Length: 5\r\n", "hello")},
		{"folded encoding", post("HTTP/1.1", "Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n")},
		{"length and chunked", post("HTTP/1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")},
		{"chunked and length", post("HTTP/1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")},
		{"Chunked with a tail", post("HTTP/1.1", "Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n")},
		{"chunked in capitals", post("HTTP/1.1", "Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n")},
		{"HTTP/9.9", "GET /livez HTTP/9.9\r\nHost: x\r\n\r\n"},
		{"two lengths", post("HTTP/1.1", "Content-Length: 5\r\nContent-Length: 5\r\n", "hello")},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"space before the colon", post("HTTP/1.1", "Content-Length : 5\r\n", "hello")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			codes, closed := f.raw(t, tt.request+next)
			if len(codes) != 1 || codes[0] != 400 && codes[0] != 505 || !closed {
				t.Errorf("answers %v, closed %v; want 400 and nothing after it", codes, closed)
			}
		})
	}
	if codes, _ := f.raw(t, next+next); len(codes) != 2 || codes[0] != 200 || codes[1] != 200 {
		t.Errorf("two plain requests: %v", codes)
	}
	// Cookies and tokens may be as long as servers in sandboxes allow.
	if codes, closed := f.raw(t, "GET /livez HTTP/1.1\r\nHost: x\r\nCookie: "+strings.Repeat("a", 60<<10)+"\r\n\r\n"); len(codes) != 1 || codes[0] != 200 || closed {
		t.Errorf("a head of 60 KiB: %v, closed %v", codes, closed)
	}
	if codes, closed := f.raw(t, "GET /livez HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("a", 70<<10)+"\r\n\r\n"); len(codes) != 1 || codes[0] != 431 || !closed {
		t.Errorf("a large head: %v", codes)
	}
}

// Paths that a proxy in front may read differently are rejected.
func TestAmbiguousPaths(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]int{
		"/sandboxes/a%2fb":                    400,
		"/templates/aliases/team%2Fname":      404,
		"/templates/team%2Fname%3Atag":        404,
		"/sandboxes/a%2Fb":                    400,
		"/sandboxes/a%5cb":                    400,
		"/sandboxes/a\\b":                     400,
		"/sandboxes/a%00b":                    400,
		"/sandboxes/%2e%2e":                   404,
		"/sandboxes/..":                       404,
		"/sandboxes/%252e":                    404,
		"/sandboxes/%c0%ae":                   404,
		"//sandboxes":                         404,
		"/sandboxes/i0.":                      404,
		"/process.Process/../v2/sandboxes":    404,
		"/process.Process/%2e%2e/v2%2fsbx":    400,
		"/v2/sandboxes/../../process.Process": 404,
	} {
		codes, _ := f.raw(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: "+key+"\r\n\r\n")
		if len(codes) != 1 || codes[0] != want {
			t.Errorf("%s: %v, want %d", path, codes, want)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	f := newFixture(t)
	const head = "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n"
	if codes, closed := f.raw(t, head+"Content-Length: 4294967296\r\n\r\n"+strings.Repeat("x", 8<<10)); len(codes) != 1 || codes[0] != 413 || !closed {
		t.Errorf("a length past the limit: %v, closed %v", codes, closed)
	}
	// 17 chunks of 1 MiB.
	chunk := "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = io.WriteString(conn, head+"Transfer-Encoding: chunked\r\n\r\n")
		for range 17 {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return
			}
		}
	}()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("chunks past the limit: %+v, %v", resp, err)
	}
	// Clients that send everything before they read get the response, too.
	const size = 32 << 20
	for name, body := range map[string]io.Reader{
		"with a length": strings.NewReader(head + fmt.Sprintf("Content-Length: %d\r\n\r\n", size) + strings.Repeat("x", size)),
		"in chunks":     strings.NewReader(head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, size>>20) + "0\r\n\r\n"),
	} {
		conn, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(conn, body); err != nil {
			t.Errorf("%s: the connection was cut: %v", name, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, err := io.ReadAll(resp.Body)
		if want := `{"code":413,"message":"Request Entity Too Large"`; err != nil || resp.StatusCode != 413 || !strings.HasPrefix(string(raw), want) || resp.Header.Get("X-Request-Id") == "" || !resp.Close {
			t.Errorf("%s: %v %s %v", name, resp, raw, err)
		}
		conn.Close()
	}
	for name, body := range map[string]io.Reader{"with a length": strings.NewReader(strings.Repeat("x", size)), "in chunks": io.MultiReader(strings.NewReader(strings.Repeat("x", size)))} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.addr+"/sandboxes", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", key)
		if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != 413 {
			t.Errorf("Go's client, %s: %v, %v", name, resp, err)
		}
	}
	// The unread rest of a body is not parsed as the next request.
	smuggled := "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	body := fmt.Sprintf("POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(smuggled), smuggled)
	if codes, _ := f.raw(t, body); len(codes) != 1 || codes[0] != 401 {
		t.Errorf("a body as a request: %v", codes)
	}
}

// Bodies of unauthenticated requests take no memory and no time.
func TestUnauthenticatedBodiesAreNotRead(t *testing.T) {
	f := newFixture(t)
	const head = "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\n"
	for name, begun := range map[string]string{
		"with a length": head + "Content-Length: 8388608\r\n\r\n" + strings.Repeat("x", 10<<10),
		"in chunks":     head + "Transfer-Encoding: chunked\r\n\r\n80000\r\n" + strings.Repeat("x", 300<<10),
	} {
		if codes, _ := f.raw(t, begun); len(codes) != 1 || codes[0] != 401 {
			t.Errorf("%s, incomplete: %v", name, codes)
		}
	}
	// A client that sends everything before it reads gets the response.
	const size = 12 << 20
	whole := head + fmt.Sprintf("Content-Length: %d\r\n\r\n", size) + strings.Repeat("x", size)
	if codes, closed := f.raw(t, whole); len(codes) != 1 || codes[0] != 401 || !closed {
		t.Errorf("whole: %v, closed %v", codes, closed)
	}
	// A small body does not cost the connection.
	small := head + "Content-Length: 2\r\n\r\n{}"
	if codes, closed := f.raw(t, small+small); len(codes) != 2 || codes[1] != 401 || closed {
		t.Errorf("small bodies: %v, closed %v", codes, closed)
	}
}

// The rest of an unread body is not parsed as the next request, in any handler.
func TestUnreadBodyIsNotARequest(t *testing.T) {
	f := newFixture(t)
	const next = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, head := range map[string]string{
		"a preflight":       "OPTIONS /v2/sandboxes HTTP/1.1\r\nHost: x\r\nOrigin: a\r\nAccess-Control-Request-Method: POST\r\n",
		"an ambiguous path": "POST /v2//sandboxes HTTP/1.1\r\nHost: x\r\n",
		"no credentials":    "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\n",
		"a probe":           "GET /livez HTTP/1.1\r\nHost: x\r\n",
	} {
		hidden := strings.Repeat("x", 8<<10) + next + next // the server reads that much ahead
		for framing, body := range map[string]string{
			"with a length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(hidden), hidden),
			"in chunks":     fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden),
		} {
			if codes, closed := f.raw(t, head+body+next); len(codes) != 2 && (len(codes) != 1 || !closed) || len(codes) == 2 && codes[1] != 200 {
				t.Errorf("%s, %s: %v, closed %v", name, framing, codes, closed)
			}
		}
	}
}

// A large response is like a small one, and the connection stays usable.
func TestLargeAnswers(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		f.create(`{"templateID":"base","metadata":{"x":"` + strings.Repeat("x", 60<<10) + `"}}`)
	}
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	for range 3 {
		if _, err := io.WriteString(conn, "GET /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+key+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || len(all) != 3 || resp.Close || resp.ContentLength < 180<<10 ||
			resp.Header.Get("X-Total-Running") != "3" || resp.Header.Get("X-Request-Id") == "" || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%d sandboxes, %v, %d bytes, %v", len(all), err, resp.ContentLength, resp.Header)
		}
	}
}

// An incomplete body is never accepted as complete: each request here would have an effect
// if it were.
func TestIncompleteBodiesHaveNoEffect(t *testing.T) {
	f := newFixture(t)
	m := f.create(base)
	for name, head := range map[string]string{
		"create":  "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n",
		"timeout": "POST /sandboxes/" + m.ID + "/timeout HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n",
		"refresh": "POST /sandboxes/" + m.ID + "/refreshes HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + key + "\r\n",
	} {
		body := `{"templateID":"base","timeout":0}`
		for how, cut := range map[string]string{
			"between chunks":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body),
			"within a chunk":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", 2*len(body), body),
			"before all of it": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 2*len(body), body),
			"before any of it": "Transfer-Encoding: chunked\r\n\r\n",
		} {
			if code := f.sendHalfClosed(t, head+cut); code != 400 {
				t.Errorf("%s, cut %s: %d", name, how, code)
			}
		}
	}
	var all []struct{ SandboxID string }
	a := f.do("GET", "/v2/sandboxes", "")
	if err := json.Unmarshal([]byte(a.body), &all); err != nil || len(all) != 1 || all[0].SandboxID != m.ID {
		t.Errorf("%v, %s", err, a.body)
	}
}

// sendHalfClosed sends bytes, closes its side, and returns the status of the response.
func (f *fixture) sendHalfClosed(t *testing.T, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("no answer: %v", err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestRequestID(t *testing.T) {
	f := newFixture(t)
	if got := f.do("GET", "/livez", "", "X-Request-Id", "abc-1").header.Get("X-Request-Id"); got != "abc-1" {
		t.Errorf("the client's id came back as %q", got)
	}
	if got := f.do("GET", "/livez", "", "X-Request-Id", "a b\"<").header.Get("X-Request-Id"); len(got) != 26 {
		t.Errorf("an invalid id came back as %q", got)
	}
}
