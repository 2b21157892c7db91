package session_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
	"github.com/millrace/millrace/services/gateway/internal/codex/session"
)

// fakeFiles is a tree in memory. A directory is a nil entry; a link is "-> target".
type fakeFiles struct {
	all      map[string][]byte
	open     int
	watches  chan struct{}
	confined *process.Confinement
}

var large = make([]byte, 12<<20)

func newFiles() *fakeFiles {
	return &fakeFiles{watches: make(chan struct{}), all: map[string][]byte{
		"/": nil, "/tmp": nil, "/tmp/a b": []byte("hello"), "/tmp/empty": {}, "/tmp/dir": nil, "/tmp/dir/x": []byte("x"),
		"/tmp/dir/.git": nil, "/tmp/dir/.git/config": []byte("c"), "/tmp/loop": []byte("-> /tmp"), "/tmp/dangling": []byte("-> /nowhere"),
		"/tmp/large": large,
	}}
}

func (f *fakeFiles) Files(c *process.Confinement) (session.Files, error) {
	if c != nil && !slices.Contains(c.Write, "/") {
		return nil, kind.New(kind.Unimplemented, "", "", "file operations cannot be confined here")
	}
	f.confined = c
	return f, nil
}

func missing(p string) error { return kind.New(kind.NotFound, "", "", p+" does not exist") }

func (f *fakeFiles) lookup(p string) (string, []byte, bool, error) {
	linked := false
	for range 8 {
		data, ok := f.all[p]
		if !ok {
			return p, nil, linked, missing(p)
		}
		target, isLink := strings.CutPrefix(string(data), "-> ")
		if !isLink {
			return p, data, linked, nil
		}
		p, linked = target, true
	}
	return p, nil, linked, missing(p)
}

func (f *fakeFiles) Stat(_ context.Context, p string) (session.FileInfo, error) {
	_, data, linked, err := f.lookup(p)
	return session.FileInfo{Dir: data == nil, Regular: data != nil, Link: linked, Size: int64(len(data)), Modified: time.UnixMilli(12)}, err
}

func (f *fakeFiles) Read(_ context.Context, p string, limit int64) ([]byte, error) {
	_, data, _, err := f.lookup(p)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, kind.New(kind.Invalid, "", "", "a directory")
	case int64(len(data)) > limit:
		return nil, kind.New(kind.Exhausted, "", "", "")
	}
	return data, nil
}

func (f *fakeFiles) Write(_ context.Context, p string, data []byte) error {
	if _, _, _, err := f.lookup(path.Dir(p)); err != nil {
		return err
	}
	f.all[p] = append([]byte{}, data...)
	return nil
}

func (f *fakeFiles) MakeDir(_ context.Context, p string, parents bool) error {
	if _, ok := f.all[p]; ok && !parents {
		return kind.New(kind.Conflict, "", "", "File exists")
	}
	f.all[p] = nil
	return nil
}

func (f *fakeFiles) List(_ context.Context, p string, limit int) ([]session.DirEntry, bool, error) {
	p, data, _, err := f.lookup(p)
	switch {
	case err != nil:
		return nil, false, err
	case data != nil:
		return nil, false, kind.New(kind.Invalid, "", "", "not a directory")
	case p == "/tmp/dir/.git":
		return nil, false, kind.New(kind.Denied, "", "", "permission denied")
	}
	var out []session.DirEntry
	for _, name := range slices.Sorted(maps.Keys(f.all)) {
		if name == "/" || path.Dir(name) != p {
			continue
		}
		if _, data, linked, err := f.lookup(name); err == nil {
			out = append(out, session.DirEntry{Name: path.Base(name), Dir: data == nil, Regular: data != nil, Link: linked})
		}
	}
	if len(out) > limit {
		return out[:limit], true, nil
	}
	return out, false, nil
}

func (f *fakeFiles) Remove(_ context.Context, p string, recursive, force bool) error {
	if _, ok := f.all[p]; !ok && !force {
		return missing(p)
	}
	delete(f.all, p)
	return nil
}

func (f *fakeFiles) RealPath(_ context.Context, p string) (string, error) {
	p, _, _, err := f.lookup(p)
	return p, err
}

func (f *fakeFiles) Copy(_ context.Context, from, to string, _ bool) error {
	f.all[to] = f.all[from]
	return nil
}

// Walk reports a truncation for a depth or a number of directories or entries of 0 or 1.
func (f *fakeFiles) Walk(ctx context.Context, p string, o *session.WalkOptions, visit func(session.Found) bool) error {
	if _, data, _, err := f.lookup(p); err != nil || data != nil {
		return cmpErr(err, kind.New(kind.Invalid, "", "", "path is not a directory: "+p))
	}
	list, _, err := f.List(ctx, p, int(o.Entries))
	if err != nil {
		visit(session.Found{Path: p, Failed: kind.Message(err)})
		return nil
	}
	for _, e := range list {
		if !visit(session.Found{Path: path.Join(p, e.Name), Dir: e.Dir}) {
			return nil
		}
	}
	for _, e := range list {
		if e.Dir && !e.Link && o.Depth > 0 && o.Entries > 1 && !(o.SkipHidden && e.Name[0] == '.') {
			below := *o
			below.Depth--
			if err := f.Walk(ctx, path.Join(p, e.Name), &below, visit); err != nil {
				return err
			}
		}
	}
	if o.Depth == 0 || o.Entries == 1 {
		visit(session.Found{Truncated: true})
	}
	return nil
}

func (f *fakeFiles) WatchMissing(ctx context.Context, missing []string, _ string) (func(), error) {
	for _, m := range missing {
		if _, ok := f.all[m]; ok {
			return nil, nil
		}
	}
	return func() {
		select {
		case <-f.watches:
		case <-ctx.Done():
		}
	}, nil
}

type fakeHandle struct {
	f    *fakeFiles
	path string
}

func (f *fakeFiles) CreateHandle(_ context.Context, p string) (session.WriteHandle, error) {
	f.all[p] = []byte{}
	f.open++
	return &fakeHandle{f, p}, nil
}

func (f *fakeFiles) OpenHandle(_ context.Context, p string) (session.ReadHandle, error) {
	if _, data, _, err := f.lookup(p); err != nil || data == nil {
		return nil, cmpErr(err, kind.New(kind.Invalid, "", "", "a directory"))
	}
	f.open++
	return &fakeHandle{f, p}, nil
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (h *fakeHandle) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	return bytes.NewReader(h.f.all[h.path]).ReadAt(p, off)
}

func (h *fakeHandle) WriteAt(_ context.Context, p []byte, off int64) error {
	data := h.f.all[h.path]
	if grow := int(off) + len(p) - len(data); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[off:], p)
	h.f.all[h.path] = data
	return nil
}

func (h *fakeHandle) Close() error { h.f.open--; return nil }

func TestFileMethods(t *testing.T) {
	const sandboxed = `"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"}}`
	tests := []struct{ method, params, want string }{
		{"fs/readFile", `{"path":"file:///tmp/a%20b"}`, `{"dataBase64":"aGVsbG8="}`},
		{"fs/readFile", `{"path":"/tmp/a b","sandbox":null}`, `{"dataBase64":"aGVsbG8="}`},
		{"fs/readFile", `{"path":"/tmp/empty"}`, `{"dataBase64":""}`},
		{"fs/readFile", `{"path":"/../tmp/./a b"}`, `{"dataBase64":"aGVsbG8="}`},
		{"fs/readFile", `{"path":"/tmp/zzz"}`, "-32004 path `/tmp/zzz` does not exist"},
		{"fs/readFile", `{"path":"file:///tmp/z%20z"}`, "-32004 path `file:///tmp/z%20z` does not exist"},
		{"fs/readFile", `{"path":"/tmp"}`, "-32600 path `/tmp` is not a file"},
		{"fs/readFile", `{"path":"tmp"}`, "-32602 invalid URI: relative URL without a base"},
		{"fs/readFile", `{"path":"/tmp/large"}`, "-32600 file is too large to read: the limit is 11534336 bytes; use fs/open"},
		{"fs/readFile", `{"path":"/tmp/a b","maxBytes":4}`, "-32600 file is too large to read: the limit is 4 bytes; use fs/open"},
		{"fs/readFile", `{"path":"/tmp/a b",` + sandboxed + `}`, "-32602 file operations cannot be confined here"},
		{"fs/readFile", `{"path":"/tmp/a b","sandbox":{"permissions":{"type":"other"}}}`, "-32602 the requested sandbox policy is not supported: permissions of type other"},
		{"fs/writeFile", `{"path":"/tmp/new","dataBase64":"YQ=="}`, `{}`},
		{"fs/writeFile", `{"path":"/zzz/new","dataBase64":"YQ=="}`, "-32004 path `/zzz/new` does not exist"},
		{"fs/writeFile", `{"path":"/tmp/new","dataBase64":"%"}`, "-32600 dataBase64 is not valid base64"},
		{"fs/createDirectory", `{"path":"/tmp/dir"}`, `{}`},
		{"fs/createDirectory", `{"path":"/tmp/dir","recursive":false}`, "-32603 File exists"},
		{"fs/getMetadata", `{"path":"/tmp/loop"}`, `{"isDirectory":true,"isFile":false,"isSymlink":true,"size":0,"createdAtMs":0,"modifiedAtMs":12}`},
		{"fs/getMetadata", `{"path":"/tmp/dangling"}`, "-32004 path `/tmp/dangling` does not exist"},
		{"fs/canonicalize", `{"path":"file:///tmp/loop"}`, `{"path":"file:///tmp"}`},
		{"fs/canonicalize", `{"path":"/tmp/loop"}`, `{"path":"/tmp"}`},
		{"fs/readDirectory", `{"path":"/tmp/dir"}`, `{"entries":[{"fileName":".git","isDirectory":true,"isFile":false},{"fileName":"x","isDirectory":false,"isFile":true}]}`},
		{"fs/readDirectory", `{"path":"/tmp/a b"}`, "-32603 not a directory"},
		{"fs/walk", `{"path":"file:///tmp/dir","options":{"maxDepth":9,"maxDirectories":9,"maxEntries":9,"followDirectorySymlinks":false}}`,
			`{"entries":[{"path":"file:///tmp/dir/.git","kind":"directory"},{"path":"file:///tmp/dir/x","kind":"file"}],"errors":[{"path":"file:///tmp/dir/.git","message":"permission denied"}],"truncated":false}`},
		{"fs/walk", `{"path":"/tmp/dir","options":{"maxDepth":9,"maxDirectories":9,"maxEntries":9,"pruneHiddenDirectories":true}}`,
			`{"entries":[{"path":"/tmp/dir/.git","kind":"directory"},{"path":"/tmp/dir/x","kind":"file"}],"errors":[],"truncated":false}`},
		{"fs/walk", `{"path":"/tmp/dir","options":{"maxDepth":9,"maxDirectories":9,"maxEntries":1}}`, `{"entries":[{"path":"/tmp/dir/.git","kind":"directory"}],"errors":[],"truncated":true}`},
		{"fs/walk", `{"path":"/tmp/dir","options":{"maxDepth":0,"maxDirectories":9,"maxEntries":9}}`,
			`{"entries":[{"path":"/tmp/dir/.git","kind":"directory"},{"path":"/tmp/dir/x","kind":"file"}],"errors":[],"truncated":true}`},
		{"fs/walk", `{"path":"/tmp/a b","options":{"maxDepth":0,"maxDirectories":9,"maxEntries":9}}`, "-32603 path is not a directory: /tmp/a b"},
		{"fs/remove", `{"path":"/tmp/new"}`, `{}`},
		{"fs/remove", `{"path":"/tmp/new"}`, `{}`},
		{"fs/remove", `{"path":"/tmp/new","force":false}`, "-32004 path `/tmp/new` does not exist"},
		{"fs/copy", `{"sourcePath":"/tmp/a b","destinationPath":"file:///tmp/copy","recursive":false}`, `{}`},
		{"fs/copy", `{"sourcePath":"/tmp/dir","destinationPath":"/tmp/copy","recursive":false}`, "-32600 fs/copy requires recursive: true when sourcePath is a directory"},
		{"fs/copy", `{"sourcePath":"/tmp/dir","destinationPath":"/tmp/dir/in","recursive":true}`, "-32600 fs/copy cannot copy a directory to itself or one of its descendants"},
		{"fs/copy", `{"sourcePath":"/zzz","destinationPath":"/tmp/x","recursive":true}`, "-32004 path `/zzz` does not exist"},
		{"environment/info", `null`, `"capabilities":{"fileWriteStreaming":true,"fsWatchMissing":true,"httpHeaderEnvVars":false}`},
	}
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		w.files = newFiles()
		c := ready(t, w, session.Config{})
		for _, tt := range tests {
			if got := c.call(tt.method, tt.params); got != tt.want && !strings.Contains(got, tt.want) {
				t.Errorf("%s %s: got %s, want %s", tt.method, tt.params, got, tt.want)
			}
		}
	})
}

func TestHandles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, f := newWorld(quiet), newFiles()
		w.files = f
		c := ready(t, w, session.Config{})
		steps := []struct{ method, params, want string }{
			{"fs/open", `{"handleId":"r","path":"/tmp/a b"}`, `{"handleId":"r"}`},
			{"fs/open", `{"handleId":"r","path":"/tmp/a b"}`, "-32600 file handle r already exists"},
			{"fs/open", `{"handleId":"d","path":"/tmp"}`, "-32600 path `/tmp` is not a file"},
			{"fs/open", `{"handleId":"z","path":"/zzz"}`, "-32004 path `/zzz` does not exist"},
			{"fs/readBlock", `{"handleId":"r","offset":0,"len":4}`, `{"chunk":"aGVsbA==","eof":false}`},
			{"fs/readBlock", `{"handleId":"r","offset":4,"len":4}`, `{"chunk":"bw==","eof":true}`},
			{"fs/readBlock", `{"handleId":"r","offset":99,"len":4}`, `{"chunk":"","eof":true}`},
			{"fs/writeBlock", `{"handleId":"r","offset":0,"chunk":"YQ=="}`, "-32600 file handle r is not open for writing"},
			{"fs/readBlock", `{"handleId":"q","offset":0,"len":4}`, "-32600 unknown file handle q"},
			{"fs/open", `{"handleId":"w","path":"/tmp/w","mode":"replace"}`, `{"handleId":"w"}`},
			{"fs/writeBlock", `{"handleId":"w","offset":2,"chunk":"YWI="}`, `{}`},
			{"fs/readBlock", `{"handleId":"w","offset":0,"len":4}`, "-32600 file handle w is not open for reading"},
			{"fs/close", `{"handleId":"w"}`, `{}`},
			{"fs/close", `{"handleId":"w"}`, `{}`},
		}
		for _, s := range steps {
			if got := c.call(s.method, s.params); got != s.want {
				t.Errorf("%s %s: got %s, want %s", s.method, s.params, got, s.want)
			}
		}
		if string(f.all["/tmp/w"]) != "\x00\x00ab" {
			t.Errorf("wrote %q", f.all["/tmp/w"])
		}
		for i := range 127 {
			c.call("fs/open", fmt.Sprintf(`{"handleId":"%d","path":"/tmp/a b"}`, i))
		}
		if got := c.call("fs/open", `{"handleId":"one more","path":"/tmp/a b"}`); got != "-32600 more than 128 open file handles" {
			t.Errorf("the 129th: %s", got)
		}
		c.close()
		if f.open != 0 {
			t.Errorf("%d files are open", f.open)
		}
	})
}

func TestWatchMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, f := newWorld(quiet), newFiles()
		w.files = f
		c := ready(t, w, session.Config{})
		if got := c.call("fs/watchMissing", `{"watchId":7,"missing":["file:///tmp"],"present":null}`); got != `{"watching":false}` {
			t.Errorf("a file that exists: %s", got)
		}
		if got := c.call("fs/watchMissing", `{"watchId":8,"missing":["file:///tmp/.git"]}`); got != `{"watching":true}` {
			t.Errorf("got %s", got)
		}
		f.watches <- struct{}{}
		if m := c.next(); m.raw != `{"method":"fs/missingChanged","params":{"watchId":8}}` {
			t.Errorf("got %s", m.raw)
		}
		for range 8 {
			if got := c.call("fs/watchMissing", `{"watchId":9,"missing":["file:///tmp/.git"]}`); got != `{"watching":true}` {
				t.Errorf("got %s", got)
			}
		}
		if got := c.call("fs/watchMissing", `{"watchId":10,"missing":["file:///tmp/.git"]}`); got != "-32600 more than 8 watches" {
			t.Errorf("the ninth watch: %s", got)
		}
	})
}

// fakeHTTP answers with a body that is written by the test.
type fakeHTTP struct {
	got  chan *protocol.HTTPParams
	body io.ReadCloser
}

func (f *fakeHTTP) Do(_ context.Context, p *protocol.HTTPParams) (*session.HTTPResponse, error) {
	f.got <- p
	if strings.Contains(p.URL, "169.254") {
		return nil, kind.New(kind.Denied, "", "", "the address is not allowed")
	}
	return &session.HTTPResponse{Status: 200, Headers: []protocol.Header{{Name: "A", Value: "b"}}, Body: f.body}, nil
}

func TestHTTP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(quiet)
		h := &fakeHTTP{got: make(chan *protocol.HTTPParams, 100), body: io.NopCloser(strings.NewReader("body"))}
		w.http = h
		c := ready(t, w, session.Config{})
		if got := c.call("http/request", `{"method":"GET","url":"https://a/","requestId":"r","headers":[{"name":"X","value":"","valueEnvVar":"PATH"}]}`); got != `{"status":200,"headers":[{"name":"A","value":"b"}],"bodyBase64":"Ym9keQ=="}` {
			t.Errorf("got %s", got)
		}
		if p := <-h.got; p.Headers[0].Value != "/bin" {
			t.Errorf("sent %+v", p)
		}
		if got := c.call("http/request", `{"method":"GET","url":"https://a/","requestId":"r","headers":[{"name":"X","value":"","valueEnvVar":"NOPE"}]}`); !strings.HasPrefix(got, "-32602") {
			t.Errorf("a missing variable: %s", got)
		}
		if got := c.call("http/request", `{"method":"GET","url":"http://169.254.169.254/","requestId":"r"}`); got != "-32603 http/request failed: the address is not allowed" {
			t.Errorf("metadata: %s", got)
		}
		r, pw := io.Pipe()
		h.body = r
		if got := c.call("http/request", `{"method":"GET","url":"https://a/","requestId":"s","streamResponse":true}`); got != `{"status":200,"headers":[{"name":"A","value":"b"}],"bodyBase64":""}` {
			t.Errorf("stream: %s", got)
		}
		if got := c.call("http/request", `{"method":"GET","url":"https://a/","requestId":"s","streamResponse":true}`); got != "-32602 a request with the id s is in progress" {
			t.Errorf("twice: %s", got)
		}
		go func() {
			pw.Write([]byte("one"))
			pw.Write([]byte("two"))
			pw.CloseWithError(errors.New("reset"))
		}()
		for i, want := range []string{"one", "two", ""} {
			m := c.next()
			if m.Method != "http/request/bodyDelta" || m.Params.RequestID != "s" || m.Params.Seq != uint64(i)+1 || string(m.Params.Delta) != want || m.Params.Done != (i == 2) || (m.Params.Error != "") != (i == 2) {
				t.Errorf("delta %d: %s", i, m.raw)
			}
		}
		h.body = io.NopCloser(strings.NewReader(strings.Repeat("x", 9<<20)))
		if got := c.call("http/request", `{"method":"GET","url":"https://a/","requestId":"big"}`); !strings.HasPrefix(got, "-32603 the body has more than") {
			t.Errorf("large: %s", got[:min(len(got), 100)])
		}
	})
}

// A file of the largest size fits into a frame.
func TestLargestFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, f := newWorld(quiet), newFiles()
		f.all["/tmp/large"] = make([]byte, 11<<20)
		w.files = f
		c := ready(t, w, session.Config{})
		got := c.call("fs/readFile", `{"path":"/tmp/large"}`)
		if want := base64.StdEncoding.EncodedLen(11 << 20); len(got) < want || len(got) > 16<<20 {
			t.Errorf("%d bytes", len(got))
		}
	})
}
