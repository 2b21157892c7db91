package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/millrace/millrace/e2e/rig"
)

const backendVersion = "v6.20220315"

// backend is a client of Backend.AI's API that signs as the Python SDK does.
type backend struct {
	t              testing.TB
	a              *rig.API
	access, secret string
}

// newBackend returns a client with a key pair of its own.
func newBackend(t testing.TB) *backend {
	t.Helper()
	return newBackendOn(t, api(t))
}

func newBackendOn(t testing.TB, a *rig.API) *backend {
	t.Helper()
	var made struct{ AccessKey, SecretKey string }
	a.Want(t, http.StatusCreated, http.MethodPost, "/api-keys", map[string]any{"name": t.Name(), "pair": true}).Decode(t, &made)
	return &backend{t, a, made.AccessKey, made.SecretKey}
}

func (b *backend) sign(req *http.Request) {
	now := time.Now().UTC()
	date := now.Format("2006-01-02T15:04:05.000000+00:00")
	media, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	if media == "" {
		media = "application/octet-stream"
	}
	empty := sha256.Sum256(nil)
	text := strings.Join([]string{
		req.Method, req.URL.RequestURI(), date, "host:" + req.URL.Host, "content-type:" + media,
		"x-backendai-version:" + backendVersion, hex.EncodeToString(empty[:]),
	}, "\n")
	key := []byte(b.secret)
	for _, part := range []string{now.Format("20060102"), req.URL.Host, text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	req.Header.Set("Date", date)
	req.Header.Set("X-BackendAI-Version", backendVersion)
	req.Header.Set("Authorization", "BackendAI signMethod=HMAC-SHA256, credential="+b.access+":"+hex.EncodeToString(key))
}

// call sends a request, and fails unless the response has a status.
func (b *backend) call(want int, method, path, mime string, body io.Reader) (*http.Response, []byte) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.a.URL+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if mime != "" {
		req.Header.Set("Content-Type", mime)
	}
	b.sign(req)
	res, err := b.a.HTTP().Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		b.t.Fatalf("%s %s: %d %s, %v; want %d", method, path, res.StatusCode, raw, err, want)
	}
	return res, raw
}

// json sends a request with JSON and decodes the response.
func (b *backend) json(want int, method, path string, body, into any) {
	b.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, raw = b.call(want, method, path, "application/json", bytes.NewReader(raw)); into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			b.t.Fatalf("%s: %v", raw, err)
		}
	}
}

func (b *backend) dial(path string) *websocket.Conn {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.a.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.sign(req)
	ws, res, err := dialer(b.a).Dial("ws"+strings.TrimPrefix(b.a.URL, "http")+path, req.Header)
	if err != nil {
		b.t.Fatalf("%s: %v %v", path, err, res)
	}
	b.t.Cleanup(func() { ws.Close() })
	ws.SetReadDeadline(time.Now().Add(time.Minute))
	return ws
}

// newSession creates a session that ends with the test.
func (b *backend) newSession(image, name string) {
	b.t.Helper()
	b.json(201, "POST", "/session", map[string]any{"image": image, "name": name}, nil)
	b.t.Cleanup(func() { b.destroy(name) })
}

type backendResult struct {
	Status   string
	RunID    string
	ExitCode *int
	Console  [][]any
}

// run runs a request to its end, and answers its requests for input.
func (b *backend) run(name string, request map[string]any, input string) (statuses, out string, code int) {
	b.t.Helper()
	for {
		var r struct{ Result backendResult }
		b.json(200, "POST", "/session/"+name, request, &r)
		for _, i := range r.Result.Console {
			out += i[0].(string)[:4] + ":" + i[1].(string)
		}
		request = map[string]any{"mode": "continue", "runId": r.Result.RunID, "code": ""}
		switch r.Result.Status {
		case "continued":
			continue
		case "waiting-input":
			request["mode"], request["code"] = "input", input
		case "finished":
			return statuses + "finished", out, *r.Result.ExitCode
		}
		statuses += r.Result.Status + " "
	}
}

// B-003, B-025, B-026, B-027, B-028: runs in real kernels.
func TestBackendAIRuns(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	b.newSession("python:3.9-ubuntu20.04", "e2e-python")
	b.newSession("base", "e2e-base")
	for _, tt := range []struct {
		session       string
		request       map[string]any
		statuses, out string
		code          int
	}{
		{"e2e-python", map[string]any{"mode": "query", "code": "x = 5\nprint('hi')\nx"}, "finished", "stdo:hi\n5\n", 0},
		{"e2e-python", map[string]any{"mode": "query", "code": "n = input('n? ')\nprint(n, x)"}, "waiting-input finished", "stdo:n? stdo:bob 5\n", 0},
		{"e2e-base", map[string]any{"mode": "query", "code": "echo a; (exit 3)"}, "finished", "stdo:a\n", 3},
		{"e2e-base", map[string]any{"mode": "query", "code": "read n; echo $n"}, "waiting-input finished", "stdo:bob\n", 0},
		{"e2e-base", map[string]any{"mode": "batch", "code": "", "options": map[string]any{"clean": nil, "build": "echo b", "exec": "echo e >&2; exit 4"}}, "clean-finished build-finished finished", "stdo:b\nstde:e\n", 4},
		{"e2e-base", map[string]any{"mode": "batch", "code": "", "options": map[string]any{"build": "exit 2", "exec": "echo e"}}, "clean-finished build-finished finished", "", 127},
	} {
		statuses, out, code := b.run(tt.session, tt.request, "bob")
		if statuses != tt.statuses || out != tt.out || code != tt.code {
			t.Errorf("%v: %s %q %d, want %s %q %d", tt.request, statuses, out, code, tt.statuses, tt.out, tt.code)
		}
	}
	ws := b.dial("/stream/session/e2e-base/execute")
	if err := ws.WriteMessage(websocket.TextMessage, []byte(`{"mode":"query","code":"echo streamed","options":null}`)); err != nil {
		t.Fatal(err)
	}
	var r backendResult
	for r.Status != "finished" {
		if err := ws.ReadJSON(&r); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.Console) != 1 || r.Console[0][1] != "streamed\n" || *r.ExitCode != 0 {
		t.Errorf("streamed: %+v", r)
	}
}

// B-013, B-014, B-016, B-018: a real terminal.
func TestBackendAITerminal(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	b.newSession("base", "e2e-terminal")
	ws := b.dial("/stream/session/e2e-terminal/pty")
	send := func(v any) {
		t.Helper()
		if err := ws.WriteJSON(v); err != nil {
			t.Fatal(err)
		}
	}
	await := func(want string) {
		t.Helper()
		var got strings.Builder
		for !strings.Contains(got.String(), want) {
			var m struct {
				Type string
				Data []byte
			}
			if err := ws.ReadJSON(&m); err != nil || m.Type != "out" {
				t.Fatalf("%+v %v after %q, want %q", m, err, got.String(), want)
			}
			got.Write(m.Data)
		}
	}
	enter := func(text, want string) {
		t.Helper()
		send(map[string]any{"type": "stdin", "chars": base64.StdEncoding.EncodeToString([]byte(text + "\r"))})
		await(want)
	}
	enter("echo rea''dy", "ready")
	send(map[string]any{"type": "resize", "rows": 33, "cols": 101})
	enter("stty size; echo $TERM", "xterm-256color")
	enter("echo $(stty size | tr ' ' x)", "33x101")
	enter("sh -c 'echo beg''un; exec sleep 100'", "begun") // the shell that runs it ignores an interrupt
	send(map[string]any{"type": "stdin", "chars": "Aw=="}) // Ctrl-C
	enter("printf '\\033[38;5;%sm' 196", "\x1b[38;5;196m")
	send(map[string]any{"type": "restart"})
	await("Restarting...")
	enter("echo af''ter", "after") // the shell may not have started yet
}

// B-032: files of a session.
func TestBackendAIFiles(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	b.newSession("base", "e2e-files")
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, content := range map[string]string{"a.txt": "one", "dir/b.txt": "two"} {
		part, err := form.CreateFormFile("src", name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, content)
	}
	form.Close()
	b.call(204, "POST", "/session/e2e-files/upload", form.FormDataContentType(), &body)

	res, raw := b.call(200, "GET", "/session/e2e-files/download", "application/json", strings.NewReader(`{"files":["a.txt","dir/b.txt"]}`))
	_, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(bytes.NewReader(raw), params["boundary"])
	for _, want := range []string{"one", "two"} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewReader(part)
		if _, err := archive.Next(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(archive); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	b.call(200, "GET", "/session/e2e-files/download?files=a.txt", "application/json", nil)
	b.call(200, "POST", "/session/e2e-files/download?files=a.txt&files=dir/b.txt", "", nil)
	b.call(200, "GET", "/session/e2e-files/download_single?file=a.txt", "", nil)
	b.call(404, "GET", "/session/e2e-files/download_single?file=none", "", nil)
	b.call(400, "GET", "/session/e2e-files/download_single?file=../x", "", nil)

	var list struct{ Files, Abspath string }
	b.json(200, "GET", "/session/e2e-files/files", map[string]string{"path": "."}, &list)
	var items []struct {
		Filename string
		Mtime    float64
		Size     int64
	}
	if err := json.Unmarshal([]byte(list.Files), &items); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, i := range items {
		found = found || i.Filename == "a.txt" && i.Size == 3 && i.Mtime > 1e9
	}
	if !found || !strings.HasPrefix(list.Abspath, "/") {
		t.Errorf("list: %+v", list)
	}
}
