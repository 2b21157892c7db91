package shim_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/schema/filesystem"
	"github.com/millrace/millrace/services/hostd/internal/wire"
)

func (h *host) ask(method, path string, data []byte) wire.Reply {
	h.t.Helper()
	rev := h.nextRev()
	h.send(wire.AppendAsk(nil, &wire.Ask{Rev: rev, Method: method, Path: path, Data: data}))
	return h.awaitReply(rev)
}

func TestFiles(t *testing.T) {
	h := connected(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	content := bytes.Repeat([]byte{0, 255, '\n'}, 1000)
	for _, err := range []error{
		os.WriteFile(at("old"), []byte("old"), 0o755), os.Symlink("old", at("link")), os.Mkdir(at("dir"), 0o700),
		os.Symlink("loop", at("loop")), syscall.Mkfifo(at("fifo"), 0o600), os.WriteFile(at("big"), make([]byte, 1<<20), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, method, path string
		data               []byte
		want               kind.Kind // 0: done
	}{
		{"a new file in new directories", "write", at("a/b/c"), content, 0},
		{"and back", "read", at("a/b/c"), content, 0},
		{"through a link", "write", at("link"), []byte("new"), 0},
		{"the link's target", "read", at("old"), []byte("new"), 0},
		{"an empty file", "write", at("empty"), nil, 0},
		{"in the place of a directory", "write", at("dir"), nil, kind.Invalid},
		{"below a file", "write", at("old/x"), nil, kind.Invalid},
		{"into a FIFO", "write", at("fifo"), []byte("x"), kind.Invalid},
		{"from a FIFO", "read", at("fifo"), nil, kind.Invalid},
		{"from a directory", "read", at("dir"), nil, kind.Invalid},
		{"from a device", "read", "/dev/zero", nil, kind.Invalid},
		{"from nowhere", "read", at("nowhere"), nil, kind.NotFound},
		{"in a loop", "read", at("loop"), nil, kind.Precondition},
		{"too much", "read", at("big"), nil, kind.Exhausted},
		{"another's home", "read", "~root/x", nil, kind.Invalid},
		{"an unknown method", "format", at("old"), nil, kind.Unimplemented},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := h.ask(tt.method, tt.path, tt.data)
			if (r.Error == "") != (tt.want == 0) || r.Error != "" && r.Kind != tt.want {
				t.Fatalf("got %v %q, want %v", r.Kind, r.Error, tt.want)
			}
			if tt.method == "read" && r.Error == "" && !bytes.Equal(r.Data, tt.data) {
				t.Errorf("%d bytes, want %d", len(r.Data), len(tt.data))
			}
		})
	}
	if fi, err := os.Lstat(at("link")); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v %v", fi, err)
	}
	if fi, err := os.Stat(at("old")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("the mode of a file that was there: %v %v", fi.Mode(), err)
	}
	left, err := filepath.Glob(at(".millrace-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// The entry is written by hand; the generated type reads it.
func TestEntryInfo(t *testing.T) {
	h := connected(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("12345"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	var file, link, folder filesystem.EntryInfo
	for path, e := range map[string]*filesystem.EntryInfo{"f": &file, "l": &link, ".": &folder} {
		r := h.ask("stat", filepath.Join(dir, path), nil)
		if err := proto.Unmarshal(r.Data, e); r.Error != "" || err != nil {
			t.Fatal(r.Error, err)
		}
	}
	if file.Name != "f" || file.Type != filesystem.FileType_FILE_TYPE_FILE || file.Size != 5 || file.Mode != 0o640 ||
		file.Permissions != "-rw-r-----" || file.Owner == "" || file.Group == "" || file.ModifiedTime.AsTime().IsZero() || file.SymlinkTarget != nil {
		t.Errorf("file %+v", &file)
	}
	if link.Name != "l" || link.Type != filesystem.FileType_FILE_TYPE_FILE || link.GetSymlinkTarget() != file.Path || link.Permissions != "Lrwxrwxrwx" {
		t.Errorf("link %+v", &link)
	}
	if folder.Type != filesystem.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("directory %+v", &folder)
	}
}

// A write that hostd sends again, because it died before it noted the answer,
// does not write over what came after it.
func TestWriteIsAppliedOnce(t *testing.T) {
	h := connected(t)
	path := filepath.Join(t.TempDir(), "f")
	rev := h.nextRev()
	first := wire.AppendAsk(nil, &wire.Ask{Rev: rev, Method: "write", Path: path, Data: []byte("first")})
	h.send(first)
	h.awaitReply(rev)
	h.ask("write", path, []byte("second"))
	h.connect()
	h.mu.Lock()
	delete(h.replies, rev)
	h.mu.Unlock()
	h.send(first)
	if r := h.awaitReply(rev); r.Error != "" || len(r.Data) == 0 {
		t.Errorf("reply %+v", r)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "second" {
		t.Errorf("%q %v", b, err)
	}
}
