package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	fws "github.com/fasthttp/websocket"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
	"github.com/millrace/millrace/events/process"
)

var errNotOpen = kind.New(kind.Precondition, "open port", "", "the port is not open")

// withEcho opens port 8000 of all sandboxes: it sends back what it receives. A line "end" closes the
// connection in order, "abort" does not.
func (f *fixture) withEcho(closed chan<- error) {
	f.host.SetAccept(func(s *mux.Stream) {
		if !strings.HasSuffix(s.Target(), ":8000") {
			s.Abort(errNotOpen)
			return
		}
		s.Accept()
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := s.Read(buf)
				switch {
				case err != nil:
					closed <- err
					s.Close()
					return
				case string(buf[:n]) == "end":
					s.Close()
					return
				case string(buf[:n]) == "abort":
					s.Abort(kind.New(kind.Unavailable, "test", "", "it broke"))
					return
				}
				s.Write(buf[:n])
			}
		}()
	})
}

const withPort = `{"image":"base","name":"apps","config":{"preopen_ports":[8000,8001]}}`

// tunnel connects to a service.
func (s *signer) tunnel(path string) *fws.Conn {
	s.t.Helper()
	ws, resp, err := s.dial(path)
	if err != nil {
		s.t.Fatalf("%s: %v, %v", path, err, resp)
	}
	s.t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	return ws
}

// closeCode returns the code with which the gateway closes a connection.
func closeCode(t *testing.T, ws *fws.Conn) int {
	t.Helper()
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			var c *fws.CloseError
			if !errors.As(err, &c) {
				t.Fatalf("without a close frame: %v", err)
			}
			return c.Code
		}
	}
}

// B-007, B-008, B-036: the services of a session.
func TestBackendAIServices(t *testing.T) {
	f := newFixture(t)
	s := f.signer()
	c := s.create("/session", withPort, 201)
	for _, path := range []string{"/stream/session/apps/apps", "/stream/kernel/" + c.SessionID + "/apps"} {
		var got []struct {
			Name, Protocol string
			Ports          []int
		}
		a := s.do("GET", path, "")
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(got) != 4 || got[0].Name != "8000" || got[0].Protocol != "preopen" || got[0].Ports[0] != 8000 {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
		names := make(map[string]bool)
		for _, p := range got {
			names[p.Name] = true
		}
		for _, p := range c.ServicePorts {
			if !names[p.Name] {
				t.Errorf("%s is not listed in %s", p.Name, a.body)
			}
		}
		if !names["sshd"] || !names["ttyd"] {
			t.Errorf("services of every session are missing: %s", a.body)
		}
	}
	const at = "/stream/session/apps/tcpproxy"
	for path, slug := range map[string]string{
		at + "?app=nothing":        "app-not-found",
		at + "?app=8000&port=8001": "app-not-found",
		at:                         "invalid-api-params",
		at + "?app=8000&port=80":   "invalid-api-params",
		at + "?app=8000&port=x":    "invalid-api-params",
		at + "?app=8000&envs=%7B%22A%22%3A%22b%22%7D": "invalid-api-params",
		"/stream/session/none/tcpproxy?app=8000":      "object-not-found",
		"/stream/session/none/apps":                   "object-not-found",
	} {
		code := 400
		if strings.HasSuffix(slug, "not-found") {
			code = 404
		}
		s.do("GET", path, "").problem(t, path, code, slug) // before the upgrade
	}
	s.do("POST", "/session/apps/start-service", `{"app":"none"}`).problem(t, "start", 404, "app-not-found")
	s.do("POST", "/session/apps/start-service", `[`).problem(t, "start", 400, "invalid-api-params")
	s.do("POST", "/session/apps/shutdown-service?service_name=none", "").problem(t, "shutdown", 404, "app-not-found")
	for body, slug := range map[string]string{`[80]`: "", `[8000,8000]`: "", `[2200]`: "", `["x"]`: ""} {
		s.do("POST", "/session", `{"image":"base","name":"more","config":{"preopen_ports":`+body+`}}`).problem(t, body+slug, 400, "invalid-api-params")
	}
}

// B-036: tunnels and their close codes.
func TestBackendAITunnel(t *testing.T) {
	f, g := twoGateways(t)
	closed := make(chan error, 1)
	f.withEcho(closed)
	f.signer().create("/session", withPort, 201)
	for i, path := range []string{"/stream/session/apps/tcpproxy?app=8000", "/v6/stream/kernel/apps/httpproxy?app=8000&port=8000"} {
		ws := []*fixture{f, g}[i].signer().tunnel(path)
		for _, n := range []int{1, 125, 126, 65535, 65536, 1 << 20} {
			data := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
			wrote := make(chan error, 1)
			go func() { wrote <- ws.WriteMessage(fws.BinaryMessage, data) }()
			var got []byte
			for len(got) < n {
				typ, part, err := ws.ReadMessage()
				if err != nil || typ != fws.BinaryMessage {
					t.Fatalf("after %d of %d bytes: type %d, %v", len(got), n, typ, err)
				}
				got = append(got, part...)
			}
			if err := <-wrote; err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes were changed", n)
			}
		}
		ws.WriteMessage(fws.CloseMessage, fws.FormatCloseMessage(1000, ""))
		if err := <-closed; !errors.Is(err, io.EOF) {
			t.Errorf("the service sees %v after a close frame, want an orderly end", err)
		}
		if got := closeCode(t, ws); got != 1000 {
			t.Errorf("code %d, want the client's", got)
		}
	}
	for first, want := range map[string]int{"end": 1001, "abort": 1011} {
		ws := f.signer().tunnel("/stream/session/apps/tcpproxy?app=8000")
		ws.WriteMessage(fws.BinaryMessage, []byte(first))
		if got := closeCode(t, ws); got != want {
			t.Errorf("%s: code %d, want %d", first, got, want)
		}
	}
	refused := f.signer().tunnel("/stream/session/apps/tcpproxy?app=8001")
	if got := closeCode(t, refused); got != 1013 {
		t.Errorf("refused: code %d, want 1013", got)
	}
	text := f.signer().tunnel("/stream/session/apps/tcpproxy?app=8000")
	text.WriteMessage(fws.TextMessage, []byte("x"))
	if got := closeCode(t, text); got != 1003 {
		t.Errorf("a text message: code %d, want 1003", got)
	}
	<-closed
	left := f.signer().tunnel("/stream/session/apps/tcpproxy?app=8000")
	left.WriteMessage(fws.BinaryMessage, []byte("x"))
	if _, got, err := left.ReadMessage(); string(got) != "x" || err != nil { // from then on the service has the connection
		t.Fatalf("%q, %v", got, err)
	}
	left.Close()
	if err := <-closed; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the service sees %v after a client that left, want an error", err)
	}
	drained := g.signer().tunnel("/stream/session/apps/tcpproxy?app=8000")
	drained.WriteMessage(fws.BinaryMessage, []byte("x"))
	if _, got, err := drained.ReadMessage(); string(got) != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	if got := closeCode(t, drained); got != 1001 {
		t.Errorf("a drain: code %d, want 1001", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// B-036: a service is started by the first connection, and once.
func TestBackendAIServiceStarts(t *testing.T) {
	f, g := twoGateways(t)
	var open atomic.Bool
	f.host.SetAccept(func(s *mux.Stream) {
		if !open.Load() {
			s.Abort(errNotOpen)
			return
		}
		s.Accept()
	})
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) {
		if spec.Tag == nil || *spec.Tag != "service:ttyd" {
			return "", false, false
		}
		defer open.Store(true)
		return "listening\n", false, true
	}
	f.signer().create("/session", `{"image":"base","name":"apps"}`, 201)
	one := f.signer().tunnel("/stream/session/apps/tcpproxy?app=ttyd")
	two := g.signer().tunnel("/stream/session/apps/tcpproxy?app=ttyd")
	var r struct {
		Token string
		Addr  string `json:"wsproxy_addr"`
	}
	a := f.signer().do("POST", "/session/apps/start-service", `{"app":"ttyd"}`)
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.code != 200 || r.Token == "" || r.Addr != "http://"+f.addr {
		t.Errorf("start-service: %d %s", a.code, a.body)
	}
	running := func() []process.Summary {
		return f.view.Processes("", func(s *process.Summary) bool { return s.Spec.Tag != nil && *s.Spec.Tag == "service:ttyd" && s.Active() })
	}
	if n := len(running()); n != 1 {
		t.Errorf("%d processes", n)
	}
	one.Close()
	two.Close()
	f.signer().do("POST", "/session/apps/shutdown-service", `{"service_name":"ttyd"}`).want(t, "shutdown", 204, "")
	f.awaitView(func() bool { return len(running()) == 0 })
}

// B-036: a service that ends before it listens is refused.
func TestBackendAIServiceThatFails(t *testing.T) {
	f := newFixture(t)
	f.host.Script = func(spec *process.Spec) (out string, ends, ok bool) {
		return "no such program\n", true, spec.Tag != nil
	}
	f.signer().create("/session", `{"image":"base","name":"apps"}`, 201)
	ws := f.signer().tunnel("/stream/session/apps/tcpproxy?app=sshd")
	if got := closeCode(t, ws); got != 1013 {
		t.Errorf("code %d, want 1013", got)
	}
	if n := len(f.view.Processes("", func(s *process.Summary) bool { return s.Spec.Tag != nil })); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}
