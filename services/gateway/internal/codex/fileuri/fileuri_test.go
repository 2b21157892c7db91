package fileuri_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
	"github.com/millrace/millrace/services/gateway/internal/codex/jsonrpc"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, in, want string // want empty: an error
		form           fileuri.Form
	}{
		{"a plain path", "/tmp/a b", "/tmp/a b", fileuri.Plain},
		{"a plain percent sign", "/tmp/100%41", "/tmp/100%41", fileuri.Plain},
		{"a file URI", "file:///tmp/a%20b", "/tmp/a b", fileuri.URI},
		{"the root", "file:///", "/", fileuri.URI},
		{"one slash", "file:/tmp", "/tmp", fileuri.URI},
		{"localhost", "file://localhost/tmp", "/tmp", fileuri.URI},
		{"another case", "FILE:///tmp", "/tmp", fileuri.URI},
		{"UTF-8", "file:///t%C3%BC/ü", "/tü/ü", fileuri.URI},
		{"bytes that are not UTF-8", "file:///%ff", "/\xff", fileuri.URI},
		{"a percent sign", "file:///100%25", "/100%", fileuri.URI},
		{"decoded once", "file:///%252e%252e/a", "/%2e%2e/a", fileuri.URI},
		{"dots", "/a/../../../etc/./passwd", "/etc/passwd", fileuri.Plain},
		{"dots in a URI", "file:///a/../../etc", "/etc", fileuri.URI},
		{"encoded dots", "file:///a/%2e%2E/%2e./etc", "/etc", fileuri.URI},
		{"a slash at the end", "/tmp/", "/tmp", fileuri.Plain},
		{"double slashes", "//tmp//a", "/tmp/a", fileuri.Plain},
		{"a drive letter is a name", "file:///C:/x", "/C:/x", fileuri.URI},

		{"empty", "", "", 0},
		{"relative", "tmp/a", "", 0},
		{"dot", ".", "", 0},
		{"home", "~/a", "", 0},
		{"a relative URI", "file:tmp", "", 0},
		{"no path", "file://", "", 0},
		{"a host", "file://example.org/etc", "", 0},
		{"a host without a path", "file://tmp", "", 0},
		{"another scheme", "http://localhost/tmp", "", 0},
		{"a query", "file:///tmp?x", "", 0},
		{"a fragment", "file:///tmp#x", "", 0},
		{"an encoded slash", "file:///tmp%2fa", "", 0},
		{"NUL", "/tmp/\x00", "", 0},
		{"an encoded NUL", "file:///tmp/%00", "", 0},
		{"half an encoding", "file:///tmp/%4", "", 0},
		{"an invalid encoding", "file:///tmp/%zz", "", 0},
		{"a long path", "/" + strings.Repeat("a", fileuri.MaxPath), "", 0},
		{"a backslash", `\tmp`, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, form, err := fileuri.Parse(tt.in)
			if tt.want == "" {
				var e *jsonrpc.Error
				if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if got != tt.want || form != tt.form || err != nil {
				t.Errorf("got %q, %v, %v; want %q, %v", got, form, err, tt.want, tt.form)
			}
		})
	}
}

func TestFormat(t *testing.T) {
	tests := []struct{ path, want string }{
		{"/", "file:///"},
		{"/tmp/a b", "file:///tmp/a%20b"},
		{"/100%/ü?#", "file:///100%25/%C3%BC%3F%23"},
		{"/a:b@c+d&e=f,(g)~", "file:///a:b@c+d&e=f,(g)~"},
		{"/\n\xff", "file:///%0A%FF"},
	}
	for _, tt := range tests {
		if got := fileuri.Format(tt.path, fileuri.URI); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
		if got := fileuri.Format(tt.path, fileuri.Plain); got != tt.path {
			t.Errorf("plain: got %s", got)
		}
	}
}

func TestWithin(t *testing.T) {
	tests := []struct {
		dir, path string
		want      bool
	}{
		{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a", "/ab", false}, {"/a", "/", false},
		{"/", "/", true}, {"/", "/a", true}, {"/a/b", "/a", false},
	}
	for _, tt := range tests {
		if got := fileuri.Within(tt.dir, tt.path); got != tt.want {
			t.Errorf("Within(%q, %q) = %v", tt.dir, tt.path, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"/tmp", "file:///a%20b", "file:///%2e%2e/x", "file://localhost/", "file:", "x", "/..", "file:///%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, form, err := fileuri.Parse(s)
		if err != nil {
			return
		}
		if !path.IsAbs(p) || path.Clean(p) != p || strings.Contains(p, "\x00") || !fileuri.Within("/", p) {
			t.Fatalf("%q became %q", s, p)
		}
		again, form2, err := fileuri.Parse(fileuri.Format(p, form))
		if again != p || form2 != form || err != nil {
			t.Fatalf("%q became %q, then %q, %v", s, p, again, err)
		}
	})
}
