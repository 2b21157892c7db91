package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// codexWorld is a server at an address that an operator allows, and one at another address.
func codexWorld(t *testing.T, body []byte) (open, closedPort string, left <-chan struct{}) {
	t.Helper()
	gone := make(chan struct{}, 1)
	forbidden := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a forbidden server was reached") }))
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	forbidden.Listener.Close()
	forbidden.Listener = ln
	forbidden.Start()
	t.Cleanup(forbidden.Close)
	world := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			w.Write(body)
		case "/redirect":
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("half"))
		case "/hold":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			if r.URL.RawQuery == "" {
				gone <- struct{}{}
			}
		case "/head":
			w.Header().Set("X", strings.Repeat("x", 300<<10))
		default:
			sent, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Answer", "a")
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.Header.Get("X-Sent"), sent)
		}
	}))
	t.Cleanup(world.Close)
	_, closedPort, _ = net.SplitHostPort(ln.Addr().String())
	return world.URL, closedPort, gone
}

type codexResponse struct {
	Status  int    `json:"status"`
	Body    []byte `json:"bodyBase64"`
	Headers []struct{ Name, Value string }
}

// http/request leaves by the sandbox's egress, whose rules apply to each connection, also to
// those of redirects and to names.
func TestCodexHTTP(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	open, closedPort, left := codexWorld(t, body)
	_, openPort, _ := net.SplitHostPort(strings.TrimPrefix(open, "http://"))
	up := rig.NewUp(t, rig.Options{Args: []string{
		"--egress", "internet", "--egress-allow", "127.0.0.1",
		"--egress-dns", rig.DNS(t, map[string]string{"open.test": "127.0.0.1", "closed.test": "127.0.0.2", "metadata.test": "169.254.169.254"}),
	}})
	box := up.Create(t, "allow_internet_access", true, "envVars", map[string]string{"TOKEN": "from-the-sandbox"})
	c := dialCodex(t, up.API, "/codex/"+box.ID)
	c.begin("")
	request := func(url string, fields ...any) codexArgs {
		args := codexArgs{"method": "GET", "url": url, "headers": []any{}, "requestId": url}
		for i := 0; i+1 < len(fields); i += 2 {
			args[fields[i].(string)] = fields[i+1]
		}
		return args
	}
	var got codexResponse
	c.call("http/request", request(open+"/x", "method", "POST", "bodyBase64", base64Of("in"), "headers", []any{codexArgs{"name": "X-Sent", "value": "", "valueEnvVar": "TOKEN"}}), &got)
	if want := "POST " + strings.TrimPrefix(open, "http://") + " from-the-sandbox in"; got.Status != http.StatusTeapot || string(got.Body) != want {
		t.Errorf("got %d %q, want %q", got.Status, got.Body, want)
	}
	c.call("http/request", request("http://open.test:"+openPort+"/"), &got)
	c.call("http/request", request(open+"/redirect?to=/x"), &got)
	if got.Status != http.StatusTeapot {
		t.Errorf("a redirect was not followed: %d", got.Status)
	}
	c.call("http/request", request(open+"/redirect?to=http://127.0.0.2:"+closedPort, "redirectPolicy", "stop"), &got)
	if got.Status != http.StatusFound {
		t.Errorf("a redirect that is not followed: %d", got.Status)
	}
	for _, url := range []string{
		"http://127.0.0.2:" + closedPort, "http://closed.test:" + closedPort, "http://localhost:" + closedPort, "http://[::1]:" + closedPort,
		"http://[::ffff:127.0.0.2]:" + closedPort, "http://2130706434:" + closedPort, "http://0x7f.2:" + closedPort, "http://0.0.0.0:" + closedPort,
		"http://10.0.0.1/", "http://192.168.0.1/", "http://[fd00::1]/", "http://169.254.169.254/latest/meta-data", "http://metadata.test/",
		open + "/redirect?to=http://127.0.0.2:" + closedPort, open + "/redirect?to=http://closed.test:" + closedPort,
		open + "/redirect?to=http://169.254.169.254/", open + "/redirect?to=file:///etc/passwd", open + "/head",
	} {
		c.refused(-32603, "http/request", request(url))
	}
	for _, bad := range []codexArgs{
		request("ftp://a/"), request("a"), request("http://"), request(open, "method", "A B"), request(open, "redirectPolicy", "x"),
		request(open, "bodyBase64", "*"), request(open, "headers", []any{codexArgs{"name": "a\n", "value": ""}}),
		request(open, "headers", []any{codexArgs{"name": "a", "value": "b\r\nc: d"}}),
		request(open, "headers", []any{codexArgs{"name": "a", "value": "", "valueEnvVar": "MISSING"}}),
	} {
		c.refused(-32602, "http/request", bad)
	}
	c.refused(-32603, "http/request", request(open+"/large")) // more than fits into an answer

	c.call("http/request", request(open+"/large", "streamResponse", true, "requestId", "large"), &got)
	deltas := c.deltas("large")
	var whole []byte
	for i, d := range deltas {
		whole = append(whole, d.Delta...)
		if d.Seq != uint64(i)+1 || d.Done != (i == len(deltas)-1) || d.Error != "" || len(d.Delta) > 64<<10 {
			t.Errorf("delta %d: seq %d, done %v, %q, %d bytes", i, d.Seq, d.Done, d.Error, len(d.Delta))
		}
	}
	if !bytes.Equal(whole, body) {
		t.Errorf("the body has %d bytes, or others", len(whole))
	}
	c.call("http/request", request(open+"/cut", "streamResponse", true, "requestId", "cut"), &got)
	if deltas := c.deltas("cut"); deltas[len(deltas)-1].Error == "" {
		t.Error("a body that was cut off has ended in order")
	}
	m := c.ask("http/request", request(open+"/hold?timeout", "streamResponse", true, "requestId", "timeout", "timeoutMs", 100))
	if m.Error == nil { // the head of the response was there in time
		if deltas := c.deltas("timeout"); deltas[len(deltas)-1].Error == "" {
			t.Error("a request that timed out has ended in order")
		}
	}
	c.call("http/request", request(open+"/hold", "streamResponse", true, "requestId", "held"), &got)
	c.refused(-32602, "http/request", request(open, "requestId", "held"))
	c.ws.Close()
	<-left // the request ends with its connection

	box = up.Create(t, "allow_internet_access", false)
	c = dialCodex(t, up.API, "/codex/"+box.ID)
	c.begin("")
	c.refused(-32603, "http/request", request(open))
}

// deltas waits for the body of a request.
func (c *codexConn) deltas(id string) []codexNote {
	c.t.Helper()
	var all []codexNote
	c.await("the body of "+id, func() bool {
		all = all[:0]
		for _, n := range c.notes {
			if n.Method == "http/request/bodyDelta" && n.RequestID == id {
				all = append(all, n)
			}
		}
		return len(all) > 0 && all[len(all)-1].Done
	})
	return all
}
