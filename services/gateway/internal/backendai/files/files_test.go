package files_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/services/gateway/internal/backendai/files"
)

// memory is a Store in memory.
type memory map[string]string

func (m memory) Write(_ context.Context, p string, content io.Reader) error {
	b, err := io.ReadAll(content)
	if err == nil {
		m[p] = string(b)
	}
	return err
}

func (m memory) Read(_ context.Context, p string, limit int64) (files.Entry, []byte, error) {
	b, ok := m[p]
	if !ok || int64(len(b)) > limit {
		return files.Entry{}, nil, kind.New(kind.NotFound, "read", "", p)
	}
	return files.Entry{Name: p, Mode: 0o640, Modified: time.Unix(1, 0)}, []byte(b), nil
}

func (m memory) List(_ context.Context, p string) (string, []files.Entry, error) {
	return "/home/user/" + p, []files.Entry{{Name: "a", Size: 3, Permissions: "-rw-r-----", Modified: time.UnixMilli(1500)}}, nil
}

// form returns a form with files, and its content type.
func form(t *testing.T, all map[string]string) (string, *bytes.Buffer) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, content := range all {
		p, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="src"; filename="` + name + `"`}})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, content)
	}
	w.Close()
	return w.FormDataContentType(), &b
}

// B-032: uploads of up to 20 files below 1 MiB.
func TestUpload(t *testing.T) {
	m := memory{}
	mime, body := form(t, map[string]string{"a": "one", "dir/b.txt": "two", "./c": strings.Repeat("x", 1<<20-1)})
	if err := files.Upload(t.Context(), m, mime, body); err != nil || m["a"] != "one" || m["dir/b.txt"] != "two" || len(m["c"]) != 1<<20-1 {
		t.Errorf("%d files, %v", len(m), err)
	}
	many := map[string]string{}
	for i := range 21 {
		many[fmt.Sprint(i)] = "x"
	}
	for name, all := range map[string]map[string]string{
		"too many": many, "too large": {"large": strings.Repeat("x", 1<<20)}, "above": {"a/../../b": "x"}, "absolute": {"/etc/passwd": "x"}, "a NUL": {"a\x00b": "x"},
	} {
		m := memory{}
		mime, body := form(t, all)
		if err := files.Upload(t.Context(), m, mime, body); !kind.Is(err, kind.Invalid) || name != "too many" && len(m) > 0 {
			t.Errorf("%s: %d files, %v", name, len(m), err)
		}
	}
	mime, body = form(t, map[string]string{"cut": strings.Repeat("x", 1000)})
	m = memory{}
	if err := files.Upload(t.Context(), m, mime, bytes.NewBuffer(body.Bytes()[:500])); !kind.Is(err, kind.Invalid) || len(m) > 0 {
		t.Errorf("cut: %d files, %v", len(m), err)
	}
	if err := files.Upload(t.Context(), m, "application/json", body); !kind.Is(err, kind.Invalid) {
		t.Errorf("not a form: %v", err)
	}
}

// B-032: each file is a tar in a part.
func TestDownload(t *testing.T) {
	m := memory{"a": "one", "dir/b": "two"}
	body, contentType, err := files.Download(t.Context(), m, []string{"a", "dir/b"})
	if err != nil {
		t.Fatal(err)
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "multipart/mixed" {
		t.Fatalf("%q, %v", contentType, err)
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for _, want := range []string{"a one", "b two"} {
		p, err := r.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		archive := tar.NewReader(p)
		head, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		content, _ := io.ReadAll(archive)
		if got := head.Name + " " + string(content); got != want || head.Mode != 0o640 {
			t.Errorf("%s with mode %o, want %s", got, head.Mode, want)
		}
	}
	for _, paths := range [][]string{nil, {"a", "a", "a", "a", "a", "a"}, {"../x"}, {"/a"}} {
		if _, _, err := files.Download(t.Context(), m, paths); !kind.Is(err, kind.Invalid) {
			t.Errorf("%q: %v", paths, err)
		}
	}
	if _, _, err := files.Download(t.Context(), m, []string{"none"}); !kind.Is(err, kind.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
}

// B-032: the list of files is JSON in a string, with numeric times.
func TestList(t *testing.T) {
	got, err := files.List(t.Context(), memory{}, "")
	var items []map[string]any
	if err != nil || json.Unmarshal([]byte(got.Files), &items) != nil || got.Folder != "." || len(items) != 1 ||
		items[0]["filename"] != "a" || items[0]["mtime"] != 1.5 || items[0]["ctime"] != 1.5 || items[0]["mode"] != "-rw-r-----" {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzUpload(f *testing.F) {
	f.Add("multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; name=\"src\"; filename=\"a\"\r\n\r\none\r\n--x--\r\n"))
	f.Fuzz(func(t *testing.T, mime string, body []byte) {
		m := memory{}
		err := files.Upload(t.Context(), m, mime, bytes.NewReader(body))
		if err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("%v", err)
		}
		for p := range m {
			if got, err := files.Check(p); err != nil || got != p {
				t.Errorf("wrote %q", p)
			}
		}
	})
}
