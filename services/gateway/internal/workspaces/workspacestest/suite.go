// Package workspacestest tests implementations of [workspaces.Store].
package workspacestest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/workspace"
	"github.com/millrace/millrace/services/gateway/internal/workspaces"
)

// Base is the URL of the gateway in links.
const Base = "http://gateway.example"

var (
	mine   = workspace.Scope{Tenant: "alice", App: "app", Set: "set"}
	other  = workspace.Scope{Tenant: "alice", App: "app", Set: "set.2"}
	theirs = workspace.Scope{Tenant: "alice-2", App: "app", Set: "set"}
)

// Run runs the tests, each with an empty store from open.
func Run(t *testing.T, open func(t *testing.T) workspaces.Store) {
	for name, test := range map[string]func(t *testing.T, s workspaces.Store){
		"files": testFiles, "scopes": testScopes, "missing": testMissing, "interrupted": testInterrupted, "pages": testPages, "links": testLinks,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func put(t *testing.T, s workspaces.Store, of workspace.Scope, p workspace.Path, data string) {
	t.Helper()
	if err := s.Put(t.Context(), of, p, int64(len(data)), strings.NewReader(data)); err != nil {
		t.Fatalf("put %s: %v", p, err)
	}
}

func read(t *testing.T, s workspaces.Store, of workspace.Scope, p workspace.Path) string {
	t.Helper()
	f, err := s.Open(t.Context(), of, p)
	if err != nil {
		t.Fatalf("open %s: %v", p, err)
	}
	defer f.Body.Close()
	got, err := io.ReadAll(f.Body)
	if err != nil || int64(len(got)) != f.Size || f.Modified.IsZero() {
		t.Fatalf("%s: %d bytes of %d, %v, modified %v", p, len(got), f.Size, err, f.Modified)
	}
	return string(got)
}

// What is stored is what is read, whatever its path is, until it is replaced or removed.
func testFiles(t *testing.T, s workspaces.Store) {
	large := make([]byte, 1<<20+1)
	rand.Read(large)
	files := map[workspace.Path]string{
		"a": "1", "b/c/d.txt": "two", "empty": "", "large": string(large), "a b+c&d=e#f?g": "x", "%2e%2e": "y", "ü/日本": "z", "...": "d", "*": "s",
	}
	for p, data := range files {
		put(t, s, mine, p, "old "+data)
		put(t, s, mine, p, data)
	}
	size := 0
	for p, data := range files {
		size += len(data)
		if got := read(t, s, mine, p); got != data {
			t.Errorf("%s: %d bytes, want %d", p, len(got), len(data))
		}
	}
	if u, err := s.Usage(t.Context(), mine); err != nil || u.Files != len(files) || u.Bytes != int64(size) {
		t.Errorf("usage %+v, %v; want %d files, %d bytes", u, err, len(files), size)
	}
	if err := s.Remove(t.Context(), mine, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), mine, "a"); !kind.Is(err, kind.NotFound) {
		t.Errorf("a removed file: %v", err)
	}
	if got := read(t, s, mine, "a b+c&d=e#f?g"); got != "x" {
		t.Errorf("beside a removed file: %q", got)
	}
}

// A workspace is not affected by another one, whatever their names have in common.
func testScopes(t *testing.T, s workspaces.Store) {
	for _, of := range []workspace.Scope{mine, other, theirs} {
		put(t, s, of, "a", of.Tenant+of.Set)
	}
	all, err := s.Workspaces(t.Context(), "alice")
	if err != nil || len(all) != 2 || all[0].Scope != mine || all[1].Scope != other || all[0].Bytes != int64(len("aliceset")) || all[0].Files != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := s.RemoveAll(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	for _, of := range []workspace.Scope{other, theirs} {
		if got := read(t, s, of, "a"); got != of.Tenant+of.Set {
			t.Errorf("%v: %q", of, got)
		}
	}
	if all, err := s.Workspaces(t.Context(), "alice"); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if all, err := s.Workspaces(t.Context(), "ali"); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func testMissing(t *testing.T, s workspaces.Store) {
	put(t, s, mine, "a/b", "x")
	for _, p := range []workspace.Path{"a", "b", "a/b/c"} {
		_, opened := s.Open(t.Context(), mine, p)
		_, linked := s.Download(t.Context(), Base, mine, p)
		for what, err := range map[string]error{"open": opened, "download": linked, "remove": s.Remove(t.Context(), mine, p)} {
			if !kind.Is(err, kind.NotFound) {
				t.Errorf("%s %s: %v", what, p, err)
			}
		}
	}
	_, usage := s.Usage(t.Context(), other)
	for what, err := range map[string]error{"usage": usage, "remove all": s.RemoveAll(t.Context(), other)} {
		if !kind.Is(err, kind.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p, err := s.List(t.Context(), other, "", "", 10); err != nil || len(p.Files) != 0 || p.More {
		t.Errorf("list: %+v, %v", p, err)
	}
}

// An upload that breaks off, or has another size than announced, stores nothing.
func testInterrupted(t *testing.T, s workspaces.Store) {
	put(t, s, mine, "a", "old")
	cut := errors.New("cut")
	for name, tt := range map[string]struct {
		size int64
		r    func() io.Reader
	}{
		"at once":   {10, func() io.Reader { return failing{cut} }},
		"later":     {2 << 20, func() io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), failing{cut}) }},
		"at end":    {3, func() io.Reader { return io.MultiReader(strings.NewReader("new"), failing{cut}) }},
		"too short": {4, func() io.Reader { return strings.NewReader("new") }},
		"too long":  {2, func() io.Reader { return strings.NewReader("new") }},
	} {
		for _, p := range []workspace.Path{"a", "b"} {
			if err := s.Put(t.Context(), mine, p, tt.size, tt.r()); err == nil {
				t.Errorf("%s: %s is stored", name, p)
			}
		}
	}
	if got := read(t, s, mine, "a"); got != "old" {
		t.Errorf("%q", got)
	}
	if _, err := s.Open(t.Context(), mine, "b"); !kind.Is(err, kind.NotFound) {
		t.Errorf("b: %v", err)
	}
}

// failing is a reader that fails.
type failing struct{ err error }

// Read fails.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

func testPages(t *testing.T, s workspaces.Store) {
	for _, p := range []workspace.Path{"b", "a/2", "a/1", "a.txt", "ab"} {
		put(t, s, mine, p, "x")
	}
	for _, tt := range []struct {
		prefix string
		after  workspace.Path
		limit  int
		want   string
		more   bool
	}{
		{"", "", 10, "a.txt a/1 a/2 ab b", false},
		{"", "", 5, "a.txt a/1 a/2 ab b", false},
		{"", "", 2, "a.txt a/1", true},
		{"", "a/1", 2, "a/2 ab", true},
		{"", "ab", 2, "b", false},
		{"", "a/15", 1, "a/2", true}, // removed since
		{"a", "", 10, "a.txt a/1 a/2 ab", false},
		{"a/", "a/1", 1, "a/2", false},
		{"a/", "z", 1, "", false},
		{"z", "", 10, "", false},
		{"../set.2", "", 10, "", false},
	} {
		p, err := s.List(t.Context(), mine, tt.prefix, tt.after, tt.limit)
		var got []string
		for _, f := range p.Files {
			got = append(got, string(f.Path))
			if f.Size != 1 || f.Modified.IsZero() {
				t.Errorf("%+v", f)
			}
		}
		if err != nil || strings.Join(got, " ") != tt.want || p.More != tt.more {
			t.Errorf("%+v: %v, %v, %v", tt, got, p.More, err)
		}
	}
}

// Links are absolute and differ by method and file.
func testLinks(t *testing.T, s workspaces.Store) {
	put(t, s, mine, "a", "x")
	seen := make(map[string]bool)
	for _, link := range []func() (string, error){
		func() (string, error) { return s.Download(t.Context(), Base, mine, "a") },
		func() (string, error) { return s.Upload(t.Context(), Base, mine, "a") },
		func() (string, error) { return s.Upload(t.Context(), Base, mine, "b") },
		func() (string, error) { return s.Upload(t.Context(), Base, other, "a") },
	} {
		url, err := link()
		if err != nil || !strings.HasPrefix(url, "http") || seen[url] {
			t.Errorf("%s, %v", url, err)
		}
		seen[url] = true
	}
}
