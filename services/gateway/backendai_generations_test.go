package gateway_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/events/field"
	"github.com/millrace/millrace/events/file"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/mux"
)

// generation is how one release of the Python client forms its requests.
type generation struct {
	name, version    string
	prefix           string // of the routes of sessions
	create           string // body; %s is the name of the session
	scheme, dateName string // scheme of Authorization, and name of the header with the date
	dateFormat       string
	runID            string // of the first request of a run, in JSON
	events           string // request target; %s is the name of the session
	destroy          string // query
	domain           bool   // the domain is sent
	starred          bool   // the form has the encoded form of a file name, too
	download         string // method of downloads
	lengths          bool   // a GET without a body has a length
}

const (
	createLang = `{"lang": "base", "clientSessionToken": "%s", "tag": null, "config": {"mounts": [], "environ": {"A": "b"}, "clusterSize": 1, ` +
		`"instanceMemory": 64, "instanceCores": 1, "instanceGPUs": 0, "instanceTPUs": 0}}`
	createImage = `{"tag": null, "clientSessionToken": "%s", "config": {"mounts": [], "environ": {"A": "b"}, "resources": {"cpu": 1, "mem": "64m"}, ` +
		`"resource_opts": {}, "clusterSize": 1, "scalingGroup": null}, "reuseIfExists": true, "domain": "default", "group": "default", "image": "base"}`
	createName = `{"tag": null, "name": "%s", "config": {"mounts": [], "environ": {"A": "b"}, "resources": {"cpu": "1", "mem": "64m"}, "resource_opts": {}, ` +
		`"scalingGroup": null}, "reuseIfExists": true, "enqueueOnly": false, "maxWaitSeconds": 0, "domain": "default", "group": "default", "type": "interactive", ` +
		`"startupCommand": null, "bootstrap_script": null, "owner_access_key": null, "image": "base"}`
	createCluster = `{"tag": null, "name": "%s", "config": {"mounts": [], "mount_map": {}, "environ": {"A": "b"}, "resources": {"cpu": "1", "mem": "64m"}, ` +
		`"resource_opts": {}, "scalingGroup": null, "preopen_ports": [], "agentList": null}, "reuseIfExists": true, "enqueueOnly": false, "maxWaitSeconds": 0, ` +
		`"domain": "default", "group": "default", "type": "interactive", "starts_at": null, "startupCommand": null, "bootstrap_script": null, ` +
		`"owner_access_key": null, "clusterSize": 1, "clusterMode": "single-node", "image": "base"}`

	micros  = "2006-01-02T15:04:05.000000+00:00"
	seconds = "2006-01-02T15:04:05+00:00" // of a date without a fraction

	oldEvents = "/stream/kernel/_/events?sessionId=%s"
	newEvents = "/events/session?name=%s&ownerAccessKey=" + pairKey + "&scope=*"
)

var generations = []generation{
	{"18.12.3", "v4.20181215", "/kernel", createLang, "BackendAI", "Date", micros, "null", oldEvents, "", false, true, "GET", true},
	{"18.12.3 with a version in its paths", "v4.20181215", "/v4/kernel", createLang, "Sorna", "X-BackendAI-Date", seconds, "null", "/v4" + oldEvents, "", false, true, "GET", true},
	{"19.09", "v4.20190615", "/kernel", createImage, "BackendAI", "Date", micros, "null", oldEvents, "", true, true, "GET", true},
	{"20.03", "v5.20191215", "/session", createName, "BackendAI", "Date", seconds, `"7f3a"`, "/events/session?sessionName=%s", "", true, true, "GET", true},
	{"22.03", "v6.20220315", "/session", createCluster, "BackendAI", "Date", micros, `"7f3a"`, newEvents, "?forced=true", true, false, "GET", true},
	{"23.09", "v7.20230615", "/session", createCluster, "BackendAI", "Date", micros, `"7f3a"`, newEvents, "?forced=true", true, false, "POST", false},
	{"24.03.11", "v8.20240315", "/session", createCluster, "BackendAI", "Date", micros, `"7f3a"`, newEvents, "?forced=true&recursive=true", true, false, "POST", false},
	{"24.03.11 with a version in its paths", "v8.20240315", "/v8/session", createCluster, "BackendAI", "Date", seconds, `"7f3a"`, "/v8" + newEvents, "?recursive=true", true, false, "POST", false},
	{"24.03.11 with the version of the gateway", "v4.20190615", "/kernel", createImage, "BackendAI", "Date", micros, `"7f3a"`, oldEvents, "", true, false, "POST", false},
}

// replay sends the requests of a generation as bytes on one connection.
type replay struct {
	generation
	t    *testing.T
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func (f *fixture) replay(t *testing.T, g *generation) *replay {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &replay{*g, t, f.addr, conn, bufio.NewReader(conn)}
}

// signature returns the value of Authorization. The package signature is not used: an error in it
// must not cancel out.
func (r *replay) signature(method, target, media, date string, day time.Time) string {
	empty := sha256.Sum256(nil)
	text := method + "\n" + target + "\n" + date + "\nhost:" + r.addr + "\ncontent-type:" + media +
		"\nx-backendai-version:" + r.version + "\n" + hex.EncodeToString(empty[:])
	key := []byte(pairSecret)
	for _, part := range []string{day.Format("20060102"), r.addr, text} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return r.scheme + " signMethod=HMAC-SHA256, credential=" + pairKey + ":" + hex.EncodeToString(key)
}

// head returns a request up to its signature: the headers of the client first, those of its HTTP
// library later. Without sent, the media type is signed only.
func (r *replay) head(method, target, media string, sent bool) string {
	now := time.Now().UTC()
	date := now.Format(r.dateFormat)
	h := method + " " + target + " HTTP/1.1\r\nHost: " + r.addr + "\r\nUser-Agent: Backend.AI Client for Python " + r.name[:5] + "\r\n"
	if r.domain {
		h += "X-BackendAI-Domain: default\r\n"
	}
	h += "X-BackendAI-Version: " + r.version + "\r\n" + r.dateName + ": " + date + "\r\n"
	if sent {
		h += "Content-Type: " + media + "\r\n"
	}
	return h + "Authorization: " + r.signature(method, target, media, date, now) + "\r\n"
}

const library = "Accept: */*\r\nAccept-Encoding: gzip, deflate\r\n"

// raw sends bytes and reads a response.
func (r *replay) raw(what, request string) answer {
	r.t.Helper()
	if _, err := io.WriteString(r.conn, request); err != nil {
		r.t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(r.in, &http.Request{Method: method})
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// do sends a request: with JSON, or as text without a body.
func (r *replay) do(method, target, body string) answer {
	r.t.Helper()
	media := "application/json"
	if body == "" {
		media = "text/plain"
	}
	h := r.head(method, target, media, true) + library
	if body != "" || method != "GET" || r.lengths {
		h += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return r.raw(method+" "+target, h+"\r\n"+body)
}

// upload sends a form with a file. The client signs the media type without the boundary, and its
// library adds the header after the signature.
func (r *replay) upload(target, name, content string) answer {
	r.t.Helper()
	const boundary = "d3b07384d113edec49eaa6238ad5ff00"
	disposition := `form-data; name="src"; filename="` + name + `"`
	if r.starred {
		disposition += "; filename*=utf-8''" + name
	}
	part := "--" + boundary + "\r\nContent-Type: application/octet-stream\r\nContent-Disposition: " + disposition
	if !r.lengths { // newer libraries send it last, and no length of the part
		part += "\r\n\r\n"
	} else {
		part += fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(content))
	}
	body := part + content + "\r\n--" + boundary + "--\r\n"
	h := r.head("POST", target, "multipart/form-data", false) + library + "Content-Type: multipart/form-data; boundary=" + boundary + "\r\n"
	if r.lengths {
		return r.raw("upload", h+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	}
	half := len(body) / 2
	return r.raw("upload", h+fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", half, body[:half], len(body)-half, body[half:]))
}

// stream opens a WebSocket connection without a Content-Type and sends a text.
func (r *replay) stream(target, text string) {
	r.t.Helper()
	h := r.head("GET", target, "application/octet-stream", false) +
		"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + library
	if a := r.raw("WebSocket", h+"\r\n"); a.code != 101 || a.header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		r.t.Fatalf("WebSocket: %d %v %s", a.code, a.header, a.body)
	}
	mask := []byte{1, 2, 3, 4}
	frame := append(binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(text))), mask...)
	for i := range len(text) {
		frame = append(frame, text[i]^mask[i%4])
	}
	if _, err := r.conn.Write(frame); err != nil {
		r.t.Fatal(err)
	}
}

// frame reads a frame of the server.
func (r *replay) frame() (first byte, payload []byte) {
	r.t.Helper()
	var head [2]byte
	_, err := io.ReadFull(r.in, head[:])
	n := int(head[1])
	if err == nil && n == 126 {
		var long [2]byte
		_, err = io.ReadFull(r.in, long[:])
		n = int(binary.BigEndian.Uint16(long[:]))
	}
	payload = make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(r.in, payload)
	}
	if err != nil {
		r.t.Fatalf("frame: %v", err)
	}
	return head[0], payload
}

// withFiles makes the host serve the files of its sandboxes from memory.
func (f *fixture) withFiles() {
	var mu sync.Mutex
	all := map[string][]byte{}
	entry := func(name string) []byte {
		e := field.AppendUint(field.AppendString(nil, 1, name[strings.LastIndex(name, "/")+1:]), 2, 1)
		e = field.AppendUint(field.AppendString(e, 3, "/home/user/"+name), 4, uint64(len(all[name])))
		e = field.AppendString(field.AppendUint(e, 5, 0o644), 6, "-rw-r--r--")
		return file.AppendFrame(nil, field.PutMessage(e, 9, func(b []byte) []byte { return field.AppendUint(b, 1, 1_700_000_000) }))
	}
	serve := func(s *mux.Stream) error {
		raw, err := file.ReadFrame(s, nil)
		if err != nil {
			return err
		}
		req, err := file.Parse(raw)
		if err != nil {
			return err
		}
		key := strings.TrimSuffix(s.Target(), ":files") + "/" + req.Path
		var content []byte
		if req.Op == file.OpWrite {
			if content, err = io.ReadAll(s); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch req.Op {
		case file.OpWrite:
			all[key] = content
			_, err = s.Write(entry(key))
		case file.OpList:
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if strings.HasPrefix(name, strings.TrimSuffix(key, ".")) {
					s.Write(entry(name))
				}
			}
		case file.OpRead:
			if _, ok := all[key]; !ok {
				return kind.New(kind.NotFound, "read", "", "the file does not exist")
			}
			s.Write(entry(key))
			if _, err = file.ReadFrame(s, nil); err == nil {
				_, err = s.Write(all[key])
			}
		default:
			_, err = s.Write(entry(key))
		}
		return err
	}
	f.host.SetAccept(func(s *mux.Stream) {
		if !strings.HasSuffix(s.Target(), ":files") {
			s.Abort(errNotOpen)
			return
		}
		s.Accept()
		go func() {
			if err := serve(s); err != nil {
				s.Abort(err)
				return
			}
			s.Close()
		}()
	})
}

// object decodes an object, which must have the keys, and returns it.
func object(t *testing.T, what string, a answer, code int, want ...string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil || a.code != code || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Fatalf("%s: %d %q %s, want %d", what, a.code, a.header.Get("Content-Type"), a.body, code)
	}
	for _, k := range want {
		if m[k] == nil {
			t.Errorf("%s: no %s in %s", what, k, a.body)
		}
	}
	return m
}

// B-011, B-022 to B-028, B-030 to B-034: each generation of the Python client has a whole session,
// and reads the responses as it expects them.
func TestBackendAIGenerations(t *testing.T) {
	f := newFixture(t)
	f.scripted()
	f.withFiles()
	for i := range generations {
		t.Run(generations[i].name, func(t *testing.T) {
			r := f.replay(t, &generations[i])
			name := fmt.Sprintf("generation-%d", i)
			id := r.begins(name)
			r.runs(name)
			r.moves(name)
			f.replay(t, &generations[i]).streams(id)
			f.replay(t, &generations[i]).ends(name, r)
		})
	}
}

// begins asks for the version, creates the session twice and describes it. It returns the id in
// the paths of WebSocket connections.
func (r *replay) begins(name string) string {
	r.t.Helper()
	a := r.raw("version", "GET / HTTP/1.1\r\nHost: "+r.addr+"\r\n"+library+"User-Agent: Python/3.6 aiohttp/3.4.4\r\n\r\n")
	if v := object(r.t, "version", a, 200, "version", "manager"); v["version"] != "v4.20190615" {
		r.t.Errorf("version: %s", a.body)
	}
	body := fmt.Sprintf(r.create, name)
	want := []string{"kernelId", "status", "servicePorts"}
	if r.version >= "v5" {
		want = []string{"sessionId", "sessionName", "status", "servicePorts"}
	}
	made := object(r.t, "create", r.do("POST", r.prefix, body), 201, want...)
	if made["created"] != true || made["status"] != "RUNNING" || made["kernelId"] != name || made["sessionName"] != name {
		r.t.Errorf("create: %v", made)
	}
	reused := 200
	if r.version == "v4.20181215" {
		reused = 201
	}
	again := object(r.t, "reuse", r.do("POST", r.prefix+"/create", body), reused, want...)
	if again["created"] != false || again["sessionId"] != made["sessionId"] {
		r.t.Errorf("reuse: %v", again)
	}
	info := object(r.t, "info", r.do("GET", r.prefix+"/"+name, ""), 200, "lang", "image", "age", "memoryLimit", "numQueriesExecuted", "cpuCreditUsed", "status")
	if info["lang"] != "base" || info["memoryLimit"] != 64.0*1024 || info["numQueriesExecuted"] != 0.0 {
		r.t.Errorf("info: %v", info)
	}
	if uuid, ok := made["sessionId"].(string); ok && r.version >= "v5" {
		return uuid
	}
	return name
}

// runs executes code by long polls until its end.
func (r *replay) runs(name string) {
	r.t.Helper()
	id := r.runID
	for _, step := range []struct{ mode, code, want string }{
		{"query", fmt.Sprintf(wrote, "name? ") + asks, "waiting-input stdout=name? "},
		{"input", strings.TrimSpace(fmt.Sprintf(wrote, "hello") + fmt.Sprintf(ended, 7)), "finished 7 stdout=hello"},
		{"continue", "", "finished 7"},
	} {
		code, err := json.Marshal(step.code)
		if err != nil {
			r.t.Fatal(err)
		}
		a := r.do("POST", r.prefix+"/"+name, `{"mode": "`+step.mode+`", "code": `+string(code)+`, "runId": `+id+`, "options": {}}`)
		got, ok := object(r.t, step.mode, a, 200, "result")["result"].(map[string]any)
		var next struct{ Result result }
		if a.decode(r.t, &next); !ok || got["console"] == nil || got["files"] == nil || next.Result.brief() != step.want {
			r.t.Fatalf("%s: %s, want %s", step.mode, a.body, step.want)
		}
		if id != "null" && id != `"`+next.Result.RunID+`"` {
			r.t.Errorf("%s: run %s, want %s", step.mode, next.Result.RunID, id)
		}
		id = `"` + next.Result.RunID + `"`
	}
	r.do("POST", r.prefix+"/"+name, `{"mode": "unknown", "code": "", "runId": null}`).problem(r.t, "unknown mode", 400, "invalid-api-params")
}

// moves uploads a file, lists and downloads it.
func (r *replay) moves(name string) {
	r.t.Helper()
	sent, stored := "a.txt", "a.txt"
	if r.starred { // the library quotes separators, and older ones repeat the name
		sent, stored = "dir%2Fb.txt", "dir/b.txt"
	}
	r.upload(r.prefix+"/"+name+"/upload", sent, "content of "+name).want(r.t, "upload", 204, "")
	list := object(r.t, "list", r.do("GET", r.prefix+"/"+name+"/files", `{"path": "."}`), 200, "files", "folder_path", "abspath", "errors")
	var items []map[string]any
	raw, _ := list["files"].(string)
	if err := json.Unmarshal([]byte(raw), &items); err != nil || len(items) != 1 || items[0]["filename"] != stored[strings.LastIndex(stored, "/")+1:] {
		r.t.Fatalf("list: %v, %v", list, err)
	}
	for _, k := range []string{"mtime", "ctime", "atime", "size"} {
		if n, ok := items[0][k].(float64); !ok || n <= 0 {
			r.t.Errorf("list: %s is %v", k, items[0][k])
		}
	}
	target, body := r.prefix+"/"+name+"/download", `{"files": ["`+stored+`"]}`
	if r.download == "POST" {
		target, body = target+"?files="+stored, ""
	}
	a := r.do(r.download, target, body)
	_, params, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || a.code != 200 {
		r.t.Fatalf("download: %d %s, %v", a.code, a.body, err)
	}
	part, err := multipart.NewReader(strings.NewReader(a.body), params["boundary"]).NextPart()
	if err != nil {
		r.t.Fatalf("download: %v", err)
	}
	archive := tar.NewReader(part)
	head, err := archive.Next()
	if err != nil {
		r.t.Fatalf("download: %v", err)
	}
	if content, err := io.ReadAll(archive); err != nil || string(content) != "content of "+name || head.Typeflag != tar.TypeReg {
		r.t.Errorf("download: %q, %v", content, err)
	}
	missing := strings.ReplaceAll(body, stored, "none")
	r.do(r.download, strings.ReplaceAll(target, "="+stored, "=none"), missing).problem(r.t, "download", 404, "object-not-found")
}

// streams executes code on a WebSocket connection.
func (r *replay) streams(id string) {
	r.t.Helper()
	code, err := json.Marshal(fmt.Sprintf(wrote, "hello") + fmt.Sprintf(ended, 3))
	if err != nil {
		r.t.Fatal(err)
	}
	at := strings.LastIndex(r.prefix, "/")
	r.stream(r.prefix[:at]+"/stream"+r.prefix[at:]+"/"+id+"/execute", `{"mode": "query", "code": `+string(code)+`, "options": {}}`)
	var got result
	for out := ""; got.Status != "finished"; {
		first, raw := r.frame()
		if err := json.Unmarshal(raw, &got); err != nil || first != 0x81 || bytes.Contains(raw, []byte(`"console":null`)) {
			r.t.Fatalf("frame %#x %q: %v", first, raw, err)
		}
		for _, item := range got.Console {
			out += item[0] + "=" + item[1]
		}
		if got.Status == "finished" && (out != "stdout=hello" || got.ExitCode == nil || *got.ExitCode != 3) {
			r.t.Errorf("stream: %q, %s", out, raw)
		}
		got.Console = nil
	}
	if first, raw := r.frame(); first != 0x88 || len(raw) < 2 || binary.BigEndian.Uint16(raw) != 1000 {
		r.t.Errorf("after the end: %#x %q", first, raw)
	}
}

// ends restarts and destroys the session on a second connection while this one reads its events.
func (r *replay) ends(name string, second *replay) {
	r.t.Helper()
	if _, err := io.WriteString(r.conn, r.head("GET", fmt.Sprintf(r.events, name), "application/octet-stream", false)+library+"\r\n"); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(r.in, nil)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("events: %v, %v", resp, err)
	}
	defer func() {
		r.conn.Close() // closing the body alone waits for its end
		resp.Body.Close()
	}()
	one := r.prefix + "/" + name
	second.do("PATCH", one, "").want(r.t, "restart", 204, "")
	stats, ok := object(r.t, "destroy", second.do("DELETE", one+r.destroy, ""), 200, "stats")["stats"].(map[string]any)
	if status, found := stats["status"]; !ok || len(stats) < 2 || found != (r.version > "v4.20181215") || found && status != "terminated" {
		r.t.Errorf("destroy: %v", stats)
	}
	delete(stats, "status")
	for k, v := range stats {
		if _, ok := v.(float64); !ok {
			r.t.Errorf("destroy: %s is %v", k, v)
		}
	}
	all := (&listener{r.t, resp, bufio.NewReader(resp.Body)}).until("session_terminated")
	if last := all[len(all)-1].data; last.SessionName != name || last.OwnerAccessKey != pairKey {
		r.t.Errorf("events: %+v", last)
	}
	second.do("GET", one, "").problem(r.t, "after the end", 404, "object-not-found")
}
