package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

const octets = "application/octet-stream"

func filesPath(p string, more ...string) string {
	q := url.Values{}
	if p != "" {
		q.Set("path", p)
	}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return "/files?" + q.Encode()
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	z.Write(b)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// wantMessage fails unless a response is an error in the form for E2B's clients.
func wantMessage(t *testing.T, name string, ans rig.Answer, status int, text string) {
	t.Helper()
	var body struct {
		Code    int
		Message string
	}
	json.Unmarshal(ans.Body, &body)
	if ans.Status != status || body.Code != status || !strings.Contains(body.Message, text) {
		t.Errorf("%s: got %v, want %d with %q", name, ans, status, text)
	}
}

// Uploaded files can be downloaded, in every form of E2B's API.
func TestFilesUpAndDown(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/files-" + box.ID
	in := []string{"E2b-Sandbox-Id", box.ID}
	data := append(allBytes(), bytes.Repeat([]byte("line of text\n"), 5000)...)
	up := func(path string, body []byte, headers ...string) rig.Answer {
		return a.Do(t, http.MethodPost, path, body, append(in, headers...)...)
	}
	down := func(path string, headers ...string) rig.Answer {
		return a.Do(t, http.MethodGet, path, nil, append(append(in, "Accept-Encoding", "identity"), headers...)...)
	}

	ans := up(filesPath(dir+"/new/raw"), data, "Content-Type", octets)
	var done []struct{ Path, Name, Type string }
	ans.Decode(t, &done)
	if ans.Status != 200 || len(done) != 1 || done[0].Path != dir+"/new/raw" || done[0].Name != "raw" || done[0].Type != "file" {
		t.Fatalf("raw: %v", ans)
	}
	up(filesPath(dir+"/gz"), gzipped(t, data), "Content-Type", octets, "Content-Encoding", "gzip")
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for _, name := range []string{dir + "/form/a", dir + "/form/b"} {
		part, err := w.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		part.Write(data)
	}
	w.WriteField("other", "is left out")
	w.Close()
	ans = up(filesPath(""), form.Bytes(), "Content-Type", w.FormDataContentType())
	if ans.Decode(t, &done); len(done) != 2 || done[1].Path != dir+"/form/b" {
		t.Errorf("form: %v", ans)
	}
	for _, p := range []string{"/new/raw", "/gz", "/form/a", "/form/b"} {
		ans := down(filesPath(dir + p))
		if ans.Status != 200 || !bytes.Equal(ans.Body, data) || ans.Header.Get("Content-Length") != strconv.Itoa(len(data)) {
			t.Errorf("%s: %d, %d bytes, %v", p, ans.Status, len(ans.Body), ans.Header)
		}
	}
	ans = down(filesPath(dir+"/gz"), "Accept-Encoding", "gzip")
	if z, err := gzip.NewReader(bytes.NewReader(ans.Body)); ans.Header.Get("Content-Encoding") != "gzip" || err != nil {
		t.Errorf("gzip down: %v, %v", ans.Header, err)
	} else if got, err := io.ReadAll(z); !bytes.Equal(got, data) || err != nil {
		t.Errorf("gzip down: %d bytes, %v", len(got), err)
	}
	for _, tt := range []struct {
		name, header, value string
		status              int
		want                []byte
	}{
		{"the middle", "Range", "bytes=10-19", 206, data[10:20]},
		{"the end", "Range", "bytes=-7", 206, data[len(data)-7:]},
		{"from a place on", "Range", fmt.Sprintf("bytes=%d-", len(data)-3), 206, data[len(data)-3:]},
		{"past the end", "Range", fmt.Sprintf("bytes=%d-", len(data)), 416, nil},
		{"two at once", "Range", "bytes=0-1,5-6", 200, data},
		{"not modified since", "If-Modified-Since", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), 304, nil},
	} {
		ans := down(filesPath(dir+"/gz"), tt.header, tt.value)
		if ans.Status != tt.status || tt.want != nil && !bytes.Equal(ans.Body, tt.want) {
			t.Errorf("%s: %d, %d bytes", tt.name, ans.Status, len(ans.Body))
		}
	}
	if ans := down(filesPath(dir+"/gz"), "Range", "bytes=999999-"); ans.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", len(data)) {
		t.Errorf("beyond the end: %v, without the file's size", ans.Header)
	}
	wantMessage(t, "what changed", down(filesPath(dir+"/gz"), "If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"), 412, "precondition failed")
	head := a.Do(t, http.MethodHead, filesPath(dir+"/gz"), nil, append(in, "Accept-Encoding", "identity")...)
	if head.Status != 200 || head.Header.Get("Content-Length") != strconv.Itoa(len(data)) || len(head.Body) != 0 {
		t.Errorf("HEAD: %v %v", head, head.Header)
	}
	up(filesPath(dir+"/empty"), []byte{}, "Content-Type", octets)
	if ans := down(filesPath(dir+"/empty"), "Accept-Encoding", "gzip"); ans.Status != 200 || ans.Header.Get("Content-Length") != "0" || len(ans.Body) != 0 {
		t.Errorf("an empty file: %v %v", ans, ans.Header)
	}
	if ans := down(filesPath("/proc/self/status")); ans.Status != 200 || !bytes.Contains(ans.Body, []byte("Name:")) {
		t.Errorf("a file without a size: %v", ans)
	}
}

// Invalid requests fail with envd's messages and leave nothing behind.
func TestInvalidFileRequests(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/bad-" + box.ID
	in := []string{"E2b-Sandbox-Id", box.ID}
	up := func(path string, body []byte, headers ...string) rig.Answer {
		return a.Do(t, http.MethodPost, path, body, append(in, headers...)...)
	}
	if ans := up(filesPath(dir+"/f"), []byte("old"), "Content-Type", octets); ans.Status != 200 {
		t.Fatalf("%v", ans)
	}
	down := func(path string, headers ...string) rig.Answer {
		return a.Do(t, http.MethodGet, path, nil, append(in, headers...)...)
	}
	wantMessage(t, "missing", down(filesPath(dir+"/none")), 404, "path '"+dir+"/none' does not exist")
	wantMessage(t, "a directory", down(filesPath(dir)), 400, "path '"+dir+"' is a directory")
	wantMessage(t, "unknown user", down(filesPath(dir+"/f", "username", "nobody-there")), 401, "nobody-there")
	wantMessage(t, "no coding", down(filesPath(dir+"/f"), "Accept-Encoding", "br;q=1, *;q=0"), 406, "encoding")
	wantMessage(t, "onto a directory", up(filesPath(dir), []byte("x"), "Content-Type", octets), 400, "is a directory")
	wantMessage(t, "what can only be a directory", up(filesPath(dir+"/new/"), []byte("x"), "Content-Type", octets), 400, "path '"+dir+"/new/' is a directory")
	wantMessage(t, "without a path", up("/files", []byte("x"), "Content-Type", octets), 400, "path query parameter is required")
	wantMessage(t, "another type", up(filesPath(dir+"/f"), []byte("x"), "Content-Type", "text/plain"), 400, "unsupported content type")
	wantMessage(t, "another coding", up(filesPath(dir+"/f"), []byte("x"), "Content-Type", octets, "Content-Encoding", "br"), 400, "br")
	wantMessage(t, "no gzip", up(filesPath(dir+"/f"), []byte("xxxxxxxxxxxxxxxxxxxx"), "Content-Type", octets, "Content-Encoding", "gzip"), 400, "body")
	half := gzipped(t, bytes.Repeat(allBytes(), 100))
	wantMessage(t, "half a gzip", up(filesPath(dir+"/f"), half[:len(half)-9], "Content-Type", octets, "Content-Encoding", "gzip"), 400, "body")
	wantMessage(t, "half a form", up(filesPath(""), []byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\""+dir+"/f\"\r\n\r\nhalf"), "Content-Type", "multipart/form-data; boundary=b"), 400, "body")
	wantMessage(t, "metadata", up(filesPath(dir+"/f"), []byte("x"), "Content-Type", octets, "X-Metadata-K", strings.Repeat("v", 5000)), 400, "metadata")

	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for range 2 {
		part, _ := w.CreateFormFile("file", dir+"/twice")
		io.WriteString(part, "content")
	}
	w.Close()
	wantMessage(t, "twice", up(filesPath(""), form.Bytes(), "Content-Type", w.FormDataContentType()), 400, "multiple files to the same path '"+dir+"/twice'")

	// A client that disconnects during an upload changes nothing.
	ctx, cancel := context.WithCancel(t.Context())
	r, feed := io.Pipe()
	go func() {
		feed.Write(bytes.Repeat([]byte("new"), 100_000))
		cancel()
		feed.CloseWithError(context.Canceled)
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL+filesPath(dir+"/f"), r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", a.Key)
	req.Header.Set("E2b-Sandbox-Id", box.ID)
	req.Header.Set("Content-Type", octets)
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Errorf("a partial upload: %s", res.Status)
	}
	clean := rig.Poll(10*time.Second, func() bool {
		return strings.TrimSpace(outputOf(a.Commands(t, box.ID, "ls -A "+dir).All(t))) == "f\ntwice"
	})
	if ans := down(filesPath(dir + "/f")); string(ans.Body) != "old" || !clean {
		t.Errorf("the file has %d bytes, clean %v", len(ans.Body), clean)
	}
}

// A full disk is 507, and the partial file is removed.
func TestFilesOnAFullDisk(t *testing.T) {
	onlySandboxed(t)
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	in := []string{"E2b-Sandbox-Id", box.ID, "Content-Type", octets}
	small := strings.TrimSpace(outputOf(a.Commands(t, box.ID, "df -B1 --output=avail /dev/shm | tail -1").All(t)))
	n, err := strconv.ParseInt(small, 10, 64)
	if err != nil || n > 512<<20 {
		t.Skipf("no small file system in the sandbox: %q", small)
	}
	big := io.LimitReader(zeros{}, n+(1<<20))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL+filesPath("/dev/shm/big"), big)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", a.Key)
	for i := 0; i < len(in); i += 2 {
		req.Header.Set(in[i], in[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	wantMessage(t, "full", rig.Answer{Status: res.StatusCode, Body: raw}, http.StatusInsufficientStorage, "not enough disk space available")
	if ans := a.Do(t, http.MethodPost, filesPath("/dev/shm/small"), []byte("fits"), in...); ans.Status != 200 {
		t.Errorf("afterwards: %v", ans)
	}
}

// outputOf returns the output of a command.
func outputOf(lines []*rig.Line) string {
	var b strings.Builder
	for _, l := range lines {
		if l.Data != nil {
			b.WriteString(*l.Data)
		}
	}
	return b.String()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Signed URLs work as in E2B's API, with and without the sandbox's name.
func TestFilesSigned(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t, "secure", true)
	other := a.Create(t, "secure", true)
	sign := func(path, op, user, token string, until ...string) []string {
		sum := sha256.Sum256([]byte(strings.Join(append([]string{path, op, user, token}, until...), ":")))
		q := []string{"signature", "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}
		if user != "" {
			q = append(q, "username", user)
		}
		if len(until) > 0 {
			q = append(q, "signature_expiration", until[0])
		}
		return q
	}
	anon := rig.API{URL: a.URL}
	noKey := []string{"X-Api-Key", ""}
	p := "/tmp/signed-" + box.ID
	ans := anon.Do(t, http.MethodPost, filesPath(p, sign(p, "write", "", box.Token)...), []byte("secret"), append(noKey, "Content-Type", octets)...)
	if ans.Status != 200 {
		t.Fatalf("a signed upload: %v", ans)
	}
	get := func(headers []string, q ...string) rig.Answer {
		return anon.Do(t, http.MethodGet, filesPath(p, q...), nil, append(headers, noKey...)...)
	}
	in := []string{"E2b-Sandbox-Id", box.ID}
	later, ago := strconv.FormatInt(time.Now().Unix()+60, 10), strconv.FormatInt(time.Now().Unix()-60, 10)
	for _, headers := range [][]string{nil, in} {
		if ans := get(headers, sign(p, "read", "", box.Token, later)...); ans.Status != 200 || string(ans.Body) != "secret" {
			t.Errorf("%v: %v", headers, ans)
		}
		wantMessage(t, "ended", get(headers, sign(p, "read", "", box.Token, ago)...), 401, "signature is already expired")
		wantMessage(t, "unsigned", get(headers), 401, "missing signature query parameter")
		wantMessage(t, "another file's", get(headers, sign(p+"x", "read", "", box.Token)...), 401, "invalid signature")
	}
	wantMessage(t, "another sandbox's", get(in, sign(p, "read", "", other.Token)...), 401, "invalid signature")
	wantMessage(t, "a wrong token", get(append(in, "X-Access-Token", other.Token)), 401, "access token present in header but does not match")
	if ans := get(append(in, "X-Access-Token", box.Token)); string(ans.Body) != "secret" {
		t.Errorf("the token: %v", ans)
	}
}

// A gateway needs little memory for the upload and download of a gigabyte.
func TestFilesInConstantMemory(t *testing.T) {
	t.Parallel()
	size := int64(1 << 30)
	if testing.Short() {
		size = 256 << 20
	}
	u := rig.NewUp(t, rig.Options{})
	box := u.Create(t)
	before := peak(t, u.PID())
	req := func(method string, body io.Reader) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, u.URL+filesPath("/tmp/big"), body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", u.Key)
		r.Header.Set("E2b-Sandbox-Id", box.ID)
		r.Header.Set("Content-Type", octets)
		r.Header.Set("Accept-Encoding", "identity")
		res, err := http.DefaultClient.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %v", method, res, err)
		}
		return res
	}
	began := time.Now()
	req(http.MethodPost, io.LimitReader(zeros{}, size)).Body.Close()
	up := time.Since(began)
	began = time.Now()
	res := req(http.MethodGet, nil)
	n, err := io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if n != size || err != nil {
		t.Errorf("downloaded %d bytes, %v", n, err)
	}
	grown := peak(t, u.PID()) - before
	mb := float64(size) / 1e6
	t.Logf("%.0f MB up at %.0f MB/s, down at %.0f MB/s; the process (all services) peaked %d MiB higher",
		mb, mb/up.Seconds(), mb/time.Since(began).Seconds(), grown>>20)
	// The process includes the NATS server with a memory stream of 64 MiB, and its heap grows
	// to three times the live heap before a collection.
	if grown > 384<<20 {
		t.Errorf("the peak rose by %d MiB", grown>>20)
	}
}

// peak returns the peak memory of a process.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// The other routes of envd's HTTP API work as in E2B.
func TestEnvdHTTP(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t, "envVars", map[string]string{"COLOR": "red"})
	dir := "/tmp/envd-" + box.ID
	in := []string{"E2b-Sandbox-Id", box.ID}
	var env map[string]string
	a.Want(t, 200, http.MethodGet, "/envs", nil, in...).Decode(t, &env)
	out := a.Commands(t, box.ID, "echo $COLOR $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID").All(t)
	if got, want := rig.Output(out, "stdout"), env["COLOR"]+" "+env["E2B_SANDBOX"]+" "+env["E2B_SANDBOX_ID"]+" "+env["E2B_TEMPLATE_ID"]+"\n"; got != want || env["COLOR"] != "red" {
		t.Errorf("a process has %q, /envs has %q", got, want)
	}
	var m map[string]float64
	if a.Want(t, 200, http.MethodGet, "/metrics", nil, in...).Decode(t, &m); m["cpu_count"] < 1 || m["mem_total"] < 1 || m["disk_total"] < 1 || m["mem_total_mib"] != float64(int64(m["mem_total"])>>20) {
		t.Errorf("metrics: %v", m)
	}
	for name, text := range map[string]string{"a": "one ", "b": "two"} {
		a.Want(t, 200, http.MethodPost, filesPath(dir+"/"+name), []byte(text), append(in, "Content-Type", octets)...)
	}
	compose := func(status int, body any) rig.Answer {
		t.Helper()
		return a.Want(t, status, http.MethodPost, "/files/compose", body, in...)
	}
	var e struct{ Path, Name, Type string }
	compose(200, map[string]any{"source_paths": []string{dir + "/a", dir + "/b"}, "destination": dir + "/all"}).Decode(t, &e)
	if e.Path != dir+"/all" || e.Name != "all" || e.Type != "file" {
		t.Errorf("composed: %+v", e)
	}
	if ans := a.Do(t, http.MethodGet, filesPath(dir+"/all"), nil, in...); string(ans.Body) != "one two" {
		t.Errorf("composed: %v", ans)
	}
	a.Want(t, 404, http.MethodGet, filesPath(dir+"/a"), nil, in...)
	for status, body := range map[int]any{
		400: map[string]any{"source_paths": []string{dir + "/all"}, "destination": dir + "/all"},
		404: map[string]any{"source_paths": []string{dir + "/none"}, "destination": dir + "/all"},
		401: map[string]any{"source_paths": []string{dir + "/all"}, "destination": dir + "/x", "username": "nobody-here"},
	} {
		wantMessage(t, "compose", compose(status, body), status, "")
	}
}
