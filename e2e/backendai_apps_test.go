package e2e_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fasthttp/websocket"
)

// forward listens on a port of this machine and passes each connection to a service of a session, as
// Backend.AI's command line programs do.
func (b *backend) forward(path string) string {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go carry(c, b.dial(path))
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	return port
}

// carry copies between a connection and a tunnel until either ends.
func carry(c net.Conn, ws *websocket.Conn) {
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := c.Read(buf)
			if err != nil {
				ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""))
				return
			}
			if ws.WriteMessage(websocket.BinaryMessage, buf[:n]) != nil {
				return
			}
		}
	}()
	defer c.Close()
	for {
		_, data, err := ws.ReadMessage()
		if err != nil {
			return
		}
		if _, err := c.Write(data); err != nil {
			return
		}
	}
}

// B-036: OpenSSH of Debian logs in through a tunnel, with the key file that the session has.
func TestBackendAISSH(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"ssh", "sshd"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	b := newBackend(t)
	b.newSession("base", "e2e-ssh")
	_, raw := b.call(200, "GET", "/session/e2e-ssh/download_single?file=id_container", "", nil)
	archive := tar.NewReader(bytes.NewReader(raw))
	if _, err := archive.Next(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(archive)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "id_container")
	if err := os.WriteFile(key, content, 0o600); err != nil {
		t.Fatal(err)
	}
	port := b.forward("/stream/session/e2e-ssh/tcpproxy?app=sshd")
	ssh := func(user, command string, input []byte) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
			"-o", "LogLevel=ERROR", "-i", key, "-p", port, user+"@127.0.0.1", command)
		cmd.Stdin = bytes.NewReader(input)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("ssh %s %q: %v %s", user, command, err, stderr.Bytes())
		}
		return out
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	for _, user := range []string{"work", "user"} {
		if got := string(ssh(user, "pwd; cat; id -u", []byte("in\n"))); got != "/home/user\nin\n1000\n" {
			t.Errorf("%s: %q", user, got)
		}
	}
	if got := ssh("work", "cat", large); !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back as %d other bytes", len(large), len(got))
	}
}

// B-036: a service of a template, which the first connection starts, and a port that the request for
// the session lists.
func TestBackendAIServices(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	b.json(201, "POST", "/session", map[string]any{"image": "base", "name": "e2e-apps", "config": map[string]any{"preopen_ports": []int{8000}}}, nil)
	t.Cleanup(func() { b.destroy("e2e-apps") })
	refused := b.dial("/stream/session/e2e-apps/tcpproxy?app=8000")
	if _, _, err := refused.ReadMessage(); !websocket.IsCloseError(err, 1013) {
		t.Errorf("nothing listens: %v, want 1013", err)
	}
	const server = `import socket
s = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
c, _ = s.accept()
n = int(c.makefile("rb").readline())
c.sendall(b"x" * n)
c.close()
`
	b.json(200, "POST", "/session/e2e-apps", map[string]any{"mode": "batch", "runId": "server", "code": "", "options": map[string]any{
		"exec": "cat > server.py <<'END'\n" + server + "END\npython3 server.py"}}, nil)
	const n = 8 << 20
	ws, first := b.dialOpen("/stream/session/e2e-apps/tcpproxy?app=8000", []byte(strconv.Itoa(n)+"\n"))
	total := len(first)
	for {
		_, data, err := ws.ReadMessage()
		if total += len(data); err == nil {
			continue
		}
		if !websocket.IsCloseError(err, 1001) || total != n {
			t.Errorf("after %d of %d bytes: %v, want 1001", total, n, err)
		}
		return
	}
}

// B-007, B-036: services of a template, from the labels of its image and from a flag. The first
// connection starts a service.
func TestBackendAITemplateServices(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	client(t, b.a, "template", "import", image(t, 1000), "services", "--service", "extra:tcp:9000")
	b.newSession("registry.test/lab/services:latest", "e2e-services")
	var list []struct {
		Name, Protocol string
		Ports          []int
	}
	b.json(200, "GET", "/stream/session/e2e-services/apps", nil, &list)
	if got := fmt.Sprint(list); got != "[{web http [8080]} {extra tcp [9000]} {sshd tcp [2200]} {ttyd http [7681]}]" {
		t.Errorf("services: %s", got)
	}
	ws := b.dial("/stream/session/e2e-services/httpproxy?app=web")
	must(t, ws.WriteMessage(websocket.BinaryMessage, []byte("GET /marker HTTP/1.0\r\n\r\n")))
	var got []byte
	for {
		_, data, err := ws.ReadMessage()
		if got = append(got, data...); err == nil {
			continue
		}
		if !websocket.IsCloseError(err, 1001) || !bytes.HasPrefix(got, []byte("HTTP/1.")) || !bytes.HasSuffix(got, []byte("made by hand\n")) {
			t.Errorf("%q, %v", got, err)
		}
		break
	}
	missing := b.dial("/stream/session/e2e-services/tcpproxy?app=sshd") // the template has no such program
	if _, _, err := missing.ReadMessage(); !websocket.IsCloseError(err, 1013) {
		t.Errorf("sshd: %v, want 1013", err)
	}
}

// dialOpen connects to a service as soon as it listens, sends the first message, and returns the
// answer.
func (b *backend) dialOpen(path string, message []byte) (ws *websocket.Conn, answer []byte) {
	b.t.Helper()
	for {
		ws := b.dial(path)
		if err := ws.WriteMessage(websocket.BinaryMessage, message); err != nil {
			b.t.Fatal(err)
		}
		_, answer, err := ws.ReadMessage()
		if err == nil {
			return ws, answer
		}
		if !websocket.IsCloseError(err, 1013) {
			b.t.Fatal(err)
		}
	}
}

// destroy ends a session if it exists.
func (b *backend) destroy(name string) {
	req, err := http.NewRequest(http.MethodDelete, b.a.URL+"/session/"+name, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.sign(req)
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
	}
}
