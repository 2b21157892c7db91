package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// codexFile is what the fs methods return.
type codexFile struct {
	Data        []byte `json:"dataBase64"`
	Chunk       []byte `json:"chunk"`
	EOF         bool   `json:"eof"`
	Path        string `json:"path"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`
	IsSymlink   bool   `json:"isSymlink"`
	Size        int64  `json:"size"`
	Created     int64  `json:"createdAtMs"`
	Modified    int64  `json:"modifiedAtMs"`
	Watching    bool   `json:"watching"`
	Truncated   bool   `json:"truncated"`
	Entries     []struct {
		Path, Kind, FileName string
	} `json:"entries"`
	Errors []json.RawMessage `json:"errors"`
}

// file calls an fs method and returns its result.
func (c *codexConn) file(method string, fields ...any) codexFile {
	c.t.Helper()
	args := codexArgs{}
	for i := 0; i+1 < len(fields); i += 2 {
		args[fields[i].(string)] = fields[i+1]
	}
	var f codexFile
	c.call("fs/"+method, args, &f)
	return f
}

// The fs methods, in both dialects. X-036: a path that is neither absolute nor a file URI is
// -32602, a missing one -32004.
func TestCodexFiles(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	dir := t.TempDir()
	c.file("createDirectory", "path", dir)
	for _, prefix := range []string{dir, "file://" + dir} {
		at := func(name string) string { return prefix + "/" + name }
		c.file("createDirectory", "path", at("a/b"))
		c.refused(-32603, "fs/createDirectory", codexArgs{"path": at("a/b"), "recursive": false})
		c.refused(-32004, "fs/createDirectory", codexArgs{"path": at("x/y"), "recursive": false})
		c.file("writeFile", "path", at("a/f"), "dataBase64", base64Of("hello"))
		c.refused(-32004, "fs/writeFile", codexArgs{"path": at("missing/f"), "dataBase64": ""})
		c.refused(-32600, "fs/writeFile", codexArgs{"path": at("a/f"), "dataBase64": "*"})
		if f := c.file("readFile", "path", at("a/../a/./f")); string(f.Data) != "hello" {
			t.Errorf("read %q", f.Data)
		}
		c.refused(-32600, "fs/readFile", codexArgs{"path": at("a")})
		c.refused(-32004, "fs/readFile", codexArgs{"path": at("missing")})
		f := c.file("getMetadata", "path", at("a/f"))
		if !f.IsFile || f.IsDirectory || f.IsSymlink || f.Size != 5 || f.Modified == 0 {
			t.Errorf("metadata %+v", f)
		}
		c.start("link"+prefix, "ln -s a "+dir+"/l; ln -s nowhere "+dir+"/dangling")
		c.closed("link" + prefix)
		if f := c.file("getMetadata", "path", at("l")); !f.IsSymlink || !f.IsDirectory {
			t.Errorf("metadata of a link %+v", f)
		}
		c.refused(-32004, "fs/getMetadata", codexArgs{"path": at("dangling")})
		if f := c.file("canonicalize", "path", at("l/f")); f.Path != at("a/f") {
			t.Errorf("the real path of %s is %s", at("l/f"), f.Path)
		}
		c.refused(-32600, "fs/copy", codexArgs{"sourcePath": at("a"), "destinationPath": at("copy"), "recursive": false})
		c.refused(-32600, "fs/copy", codexArgs{"sourcePath": at("a"), "destinationPath": at("a/b/c"), "recursive": true})
		c.file("copy", "sourcePath", at("a"), "destinationPath", at("copy"), "recursive", true)
		c.file("copy", "sourcePath", at("l"), "destinationPath", at("copied-link"), "recursive", false)
		walk := codexArgs{"maxDepth": 9, "maxDirectories": 9, "maxEntries": 9}
		var got []string
		for _, e := range c.file("walk", "path", at("copy"), "options", walk).Entries {
			got = append(got, e.Kind+" "+e.Path)
		}
		if want := []string{"directory " + at("copy/b"), "file " + at("copy/f")}; !slices.Equal(got, want) {
			t.Errorf("walk: got %v, want %v", got, want)
		}
		c.refused(-32602, "fs/walk", codexArgs{"path": at("copy"), "options": codexArgs{"maxDepth": 9}})
		c.refused(-32603, "fs/remove", codexArgs{"path": at("copy"), "recursive": false})
		c.file("remove", "path", at("copy"))
		c.file("remove", "path", at("copy"))
		c.refused(-32004, "fs/remove", codexArgs{"path": at("copy"), "force": false})
		for _, name := range []string{"a", "l", "dangling", "copied-link"} {
			c.file("remove", "path", at(name))
		}
		if f := c.file("readDirectory", "path", prefix); len(f.Entries) != 0 {
			t.Errorf("remaining: %v", f.Entries)
		}
	}
	for _, p := range []string{"", "a", "./a", "http://host/a", "file://host/a", "file:///a%00b", "file:///a%2", "file:a"} {
		c.refused(-32602, "fs/getMetadata", codexArgs{"path": p})
	}
}

// Files are read and written in blocks of a handle; a connection has at most 128.
func TestCodexHandles(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	dir := t.TempDir()
	c.file("createDirectory", "path", dir)
	p := dir + "/f"
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	c.file("open", "handleId", "w", "path", p, "mode", "replace")
	for i := range 3 {
		c.call("fs/writeBlock", codexArgs{"handleId": "w", "offset": i << 20, "chunk": block}, nil)
	}
	c.call("fs/close", codexArgs{"handleId": "w"}, nil)
	c.call("fs/close", codexArgs{"handleId": "w"}, nil)
	c.refused(-32600, "fs/writeBlock", codexArgs{"handleId": "w", "offset": 0, "chunk": ""})
	c.refused(-32602, "fs/open", codexArgs{"handleId": "x", "path": p, "mode": "append"})
	for i := range 128 {
		c.call("fs/open", codexArgs{"handleId": fmt.Sprint(i), "path": p}, nil)
	}
	c.refused(-32600, "fs/open", codexArgs{"handleId": "one more", "path": p})
	c.refused(-32600, "fs/open", codexArgs{"handleId": "0", "path": p})
	for i := range 3 {
		if f := c.file("readBlock", "handleId", "77", "offset", i<<20, "len", 1<<20); !bytes.Equal(f.Chunk, block) || f.EOF {
			t.Errorf("block %d: %d bytes, EOF %v", i, len(f.Chunk), f.EOF)
		}
	}
	c.start("replace", "echo other >"+p+".new; mv "+p+".new "+p) // a handle is of the file that it opened
	c.closed("replace")
	if f := c.file("readBlock", "handleId", "5", "offset", 3<<20-2, "len", 4); string(f.Chunk) != "ef" || !f.EOF {
		t.Errorf("the end: %q, EOF %v", f.Chunk, f.EOF)
	}
	for _, n := range []int{0, 1<<20 + 1} {
		c.refused(-32602, "fs/readBlock", codexArgs{"handleId": "5", "offset": 0, "len": n})
	}
}

// A watch reports a file that appears, once.
func TestCodexWatchMissing(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	dir := t.TempDir()
	c.file("createDirectory", "path", dir)
	if f := c.file("watchMissing", "watchId", 1, "missing", []string{"file://" + dir}); f.Watching {
		t.Error("it waits for a file that exists")
	}
	if f := c.file("watchMissing", "watchId", 2, "missing", []string{"file://" + dir + "/a/.git", "file://" + dir + "/.git"}, "present", nil); !f.Watching {
		t.Error("it does not wait")
	}
	c.start("make", "mkdir -p "+dir+"/a/.git")
	c.closed("make")
	c.await("change", func() bool {
		n := 0
		for _, note := range c.notes {
			if note.Method == "fs/missingChanged" && note.WatchID == 2 {
				n++
			}
		}
		return n == 1
	})
}

// A policy of the client is enforced for files, or refused.
func TestCodexFilePolicies(t *testing.T) {
	t.Parallel()
	c, _ := newCodex(t)
	dir := t.TempDir()
	special := func(name, access string) codexArgs {
		return codexArgs{"path": codexArgs{"type": "special", "value": codexArgs{"kind": name}}, "access": access}
	}
	policy := func(entries ...codexArgs) codexArgs {
		return codexArgs{"cwd": dir, "workspaceRoots": []string{dir + "/w"}, "permissions": codexArgs{
			"type": "managed", "network": "restricted", "file_system": codexArgs{"type": "restricted", "entries": entries},
		}}
	}
	c.file("createDirectory", "path", dir+"/w")
	c.file("writeFile", "path", dir+"/w/f", "dataBase64", base64Of("f"))
	c.start("link", "ln -s "+dir+" "+dir+"/w/out")
	c.closed("link")
	readOnly, workspace := policy(special("root", "read")), policy(special("root", "read"), special("project_roots", "write"))
	tests := []struct {
		method string
		policy codexArgs
		args   codexArgs
		ok     bool
	}{
		{"fs/readFile", readOnly, codexArgs{"path": dir + "/w/f"}, true},
		{"fs/readDirectory", workspace, codexArgs{"path": dir}, true},
		{"fs/open", readOnly, codexArgs{"path": dir + "/w/f", "handleId": "r"}, true},
		{"fs/open", readOnly, codexArgs{"path": dir + "/w/f", "handleId": "w", "mode": "replace"}, false},
		{"fs/writeFile", readOnly, codexArgs{"path": dir + "/w/f", "dataBase64": ""}, false},
		{"fs/createDirectory", readOnly, codexArgs{"path": dir + "/w/d"}, false},
		{"fs/copy", readOnly, codexArgs{"sourcePath": dir + "/w/f", "destinationPath": dir + "/w/g", "recursive": false}, false},
		{"fs/remove", readOnly, codexArgs{"path": dir + "/w/f"}, false},
		{"fs/writeFile", workspace, codexArgs{"path": dir + "/outside", "dataBase64": ""}, false},
		{"fs/writeFile", workspace, codexArgs{"path": dir + "/w/out/outside", "dataBase64": ""}, false},
		{"fs/writeFile", workspace, codexArgs{"path": dir + "/w/../outside", "dataBase64": ""}, false},
		{"fs/writeFile", workspace, codexArgs{"path": dir + "/w/new", "dataBase64": ""}, landlock(t)},
		{"fs/copy", workspace, codexArgs{"sourcePath": "/etc/passwd", "destinationPath": dir + "/w/g", "recursive": false}, landlock(t)},
		{"fs/readFile", policy(special("project_roots", "read")), codexArgs{"path": "/etc/passwd"}, false},
		{"fs/readFile", policy(special("project_roots", "read")), codexArgs{"path": dir + "/w/f"}, landlock(t)},
		{"fs/readFile", codexArgs{"permissions": codexArgs{"type": "unknown"}}, codexArgs{"path": dir + "/w/f"}, false},
	}
	for _, tt := range tests {
		tt.args["sandbox"] = tt.policy
		if m := c.ask(tt.method, tt.args); (m.Error == nil) != tt.ok {
			t.Errorf("%s %v: result %s, error %v; want ok %v", tt.method, tt.args, m.Result, m.Error, tt.ok)
		}
	}
	var names []string
	for _, e := range c.file("readDirectory", "path", dir).Entries {
		names = append(names, e.FileName)
	}
	if got := strings.Join(names, " "); got != "w" {
		t.Errorf("outside of the workspace is %s", got)
	}
	if f := c.file("readFile", "path", dir+"/w/f"); string(f.Data) != "f" {
		t.Errorf("the file has %q", f.Data)
	}
}
