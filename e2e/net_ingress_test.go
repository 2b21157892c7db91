package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// sendRaw sends a raw request without the end of its head, and returns the status and the body.
func sendRaw(t *testing.T, a *rig.API, head string) (int, string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, head+"Connection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return res.StatusCode, ""
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	return res.StatusCode, string(body)
}

// portNames returns all ways to address a port of a sandbox at the gateway, as lines of a
// request. With headers the Host is another one.
func portNames(id, port, other string) map[string]string {
	host := func(h string) string { return "Host: " + h + "\r\n" }
	header := func(id, port string) string {
		return host(other) + "E2b-Sandbox-Id: " + id + "\r\nE2b-Sandbox-Port: " + port + "\r\n"
	}
	out := map[string]string{
		"E2B's host":               host(port + "-" + id + ".e2b.app"),
		"a host with a port":       host(port + "-" + id + ".localhost:7300"),
		"a host in capitals":       host(port + "-" + strings.ToUpper(id) + ".LOCALHOST"),
		"a host with a client":     host(port + "-" + id + "-6532622b.e2b.app"),
		"the SDKs' headers":        header(id, port),
		"headers with a client":    header(id+"-6532622b", port),
		"headers with zeros":       header(id, "000"+port),
		"headers with a sign":      header(id, "+"+port),
		"a host that wins headers": host(port+"-"+id+".localhost") + "E2b-Sandbox-Id: " + id + "\r\nE2b-Sandbox-Port: 9\r\n",
	}
	if len(port) < 5 { // otherwise it is not a valid port
		out["a host with zeros"] = host("0" + port + "-" + id + ".localhost")
	}
	return out
}

// Clients of a sandbox's ports cannot use its egress: the sandbox's proxy is not reachable
// as a port, with any key and any form of request.
func TestIngressDoesNotReachEgress(t *testing.T) {
	t.Parallel()
	if rig.Driver(t) == "direct" {
		t.Skip("without isolation sandboxes use the host's network")
	}
	var visited atomic.Int64
	world := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visited.Add(1)
		fmt.Fprintln(w, "the world")
	}))
	t.Cleanup(world.Close)
	up := rig.NewUp(t, rig.Options{Args: []string{"--egress", "internet", "--egress-allow", "127.0.0.1"}})
	box := up.Create(t, "allow_internet_access", true)
	script := `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET %s HTTP/1.0\r\n\r\n' "$URL" >&3; tail -n 1 <&3`
	own := up.Commands(t, box.ID, `bash -c "$SCRIPT"`, "envs", map[string]string{"SCRIPT": script, "URL": world.URL}).All(t)
	if got := rig.Output(own, "stdout"); got != "the world\n" || visited.Load() != 1 {
		t.Fatalf("the sandbox itself: %q", got)
	}
	addr := world.Listener.Addr().String()
	const refused = `"message":"The sandbox is running but port is not open","port":3128`
	for key, line := range map[string]string{"no key": "", "the key": "X-Api-Key: " + up.Key + "\r\n"} {
		for name, lines := range portNames(box.ID, "3128", addr) {
			for _, request := range []string{
				"GET / HTTP/1.1\r\n",
				"OPTIONS * HTTP/1.1\r\n",
				"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
			} {
				if status, got := sendRaw(t, up.API, request+lines+line); status != http.StatusBadGateway || !strings.Contains(got, refused) {
					t.Errorf("%s, %s, %q: %d %s", name, key, request, status, got)
				}
			}
			// As to a proxy: the host of the URL has precedence over the Host header. It may
			// only lead to the gateway's own page.
			if status, got := sendRaw(t, up.API, "GET "+world.URL+"/ HTTP/1.1\r\n"+lines+line); status < 400 && !strings.HasPrefix(got, `{"name":"millrace",`) {
				t.Errorf("%s, %s, as to a proxy: %d %s", name, key, status, got)
			}
			for _, target := range []string{addr, "/"} {
				status, got := sendRaw(t, up.API, "CONNECT "+target+" HTTP/1.1\r\n"+lines+line)
				if status != http.StatusMethodNotAllowed || !strings.Contains(got, "CONNECT is not passed on") {
					t.Errorf("%s, %s: CONNECT %s: %d %s", name, key, target, status, got)
				}
			}
		}
		status, got := sendRaw(t, up.API, "GET http://3128-"+box.ID+".e2b.app/ HTTP/1.1\r\nHost: localhost\r\n"+line)
		if status != http.StatusBadGateway || !strings.Contains(got, refused) {
			t.Errorf("a URL, %s: %d %s", key, status, got)
		}
	}
	if n := visited.Load(); n != 1 {
		t.Errorf("the external server got %d requests, want one, from the sandbox", n)
	}
}

// A CONNECT request to a port is not forwarded.
func TestCONNECTIsNotForwarded(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	host := servePort(t, a, box)
	port, _, _ := strings.Cut(host, "-")
	for name, lines := range portNames(box.ID, port, "localhost") {
		if status, got := sendRaw(t, a, "GET / HTTP/1.1\r\n"+lines); status != http.StatusOK {
			t.Errorf("%s: the port itself: %d %s", name, status, got)
		}
		for key, line := range map[string]string{"no key": "", "the key": "X-Api-Key: " + a.Key + "\r\n"} {
			for _, target := range []string{"127.0.0.1:" + port, "/"} {
				status, got := sendRaw(t, a, "CONNECT "+target+" HTTP/1.1\r\n"+lines+line)
				if status != http.StatusMethodNotAllowed || !strings.Contains(got, "CONNECT is not passed on") {
					t.Errorf("%s, %s: CONNECT %s: %d %s", name, key, target, status, got)
				}
			}
		}
	}
}
