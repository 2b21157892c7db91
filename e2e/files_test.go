package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

const fsService = "/filesystem.Filesystem/"

// fileEntry is an EntryInfo in JSON.
type fileEntry struct {
	Name, Type, Path, Size, Permissions, Owner, Group, ModifiedTime string
	SymlinkTarget                                                   *string
	Mode                                                            int
	Metadata                                                        map[string]string
}

func decodeEntry(t *testing.T, ans rig.Answer) fileEntry {
	t.Helper()
	if ans.Status != http.StatusOK {
		t.Fatalf("%v", ans)
	}
	var res struct{ Entry fileEntry }
	ans.Decode(t, &res)
	return res.Entry
}

// Entries and error codes are as in E2B's filesystem service.
func TestFilesystemRPCs(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/rpc-" + box.ID
	call := func(method string, msg map[string]any) rig.Answer { return a.RPC(t, box.ID, fsService+method, msg) }

	e := decodeEntry(t, call("MakeDir", map[string]any{"path": dir + "/a/b"}))
	if e.Name != "b" || e.Type != "FILE_TYPE_DIRECTORY" || e.Path != dir+"/a/b" || e.Permissions != "drwxr-xr-x" || e.Mode != 0o755 || e.Owner == "" || e.ModifiedTime == "" {
		t.Errorf("made %+v", e)
	}
	a.Commands(t, box.ID, "cd "+dir+" && printf 12345 >a/f && ln -s a/f l && ln -s nowhere broken && ln -s round round && mkfifo fifo").All(t)
	e = decodeEntry(t, call("Stat", map[string]any{"path": dir + "/l"}))
	if e.Type != "FILE_TYPE_FILE" || e.Permissions != "Lrwxrwxrwx" || e.SymlinkTarget == nil || *e.SymlinkTarget != dir+"/a/f" {
		t.Errorf("a link is %+v", e)
	}
	var list struct{ Entries []fileEntry }
	call("ListDir", map[string]any{"path": dir, "depth": 2}).Decode(t, &list)
	var names []string
	for _, e := range list.Entries {
		names = append(names, strings.TrimPrefix(e.Path, dir+"/"))
	}
	if got := strings.Join(names, " "); got != "a a/b a/f broken fifo l round" {
		t.Errorf("listed %s", got)
	}
	if e := decodeEntry(t, call("Move", map[string]any{"source": dir + "/a/f", "destination": dir + "/x/y/g"})); e.Path != dir+"/x/y/g" || e.Size != "5" {
		t.Errorf("moved %+v", e)
	}
	for _, tt := range []struct {
		method string
		msg    map[string]any
		status int
		code   string
	}{
		{"MakeDir", map[string]any{"path": dir + "/a"}, 409, "already_exists"},
		{"MakeDir", map[string]any{"path": dir + "/x/y/g"}, 400, "invalid_argument"},
		{"ListDir", map[string]any{"path": dir + "/x/y/g"}, 400, "invalid_argument"},
		{"ListDir", map[string]any{"path": dir + "/none"}, 404, "not_found"},
		{"ListDir", map[string]any{"path": dir + "/round"}, 400, "failed_precondition"},
		{"Move", map[string]any{"source": dir + "/none", "destination": dir + "/other"}, 404, "not_found"},
		{"Stat", map[string]any{"path": dir + "/none"}, 404, "not_found"},
		{"Stat", map[string]any{"path": "~other/x"}, 400, "invalid_argument"},
		{"Stat", map[string]any{"path": "a\x00b"}, 400, "invalid_argument"},
		{"Stat", map[string]any{"path": strings.Repeat("x", 5000)}, 400, "invalid_argument"},
		{"Stat", map[string]any{"path": 7}, 400, "invalid_argument"},
		{"Remove", map[string]any{"path": "/"}, 400, "invalid_argument"},
	} {
		wantCode(t, tt.method, call(tt.method, tt.msg), tt.status, tt.code)
	}
	wantCode(t, "unknown user", a.RPC(t, box.ID, fsService+"Stat", map[string]any{"path": "/"}, "Authorization", "Basic bm9ib2R5LXRoZXJlOg=="), 401, "unauthenticated")
	for range 2 {
		if ans := call("Remove", map[string]any{"path": dir}); ans.Status != http.StatusOK {
			t.Errorf("Remove: %v", ans)
		}
	}
	wantCode(t, "Stat of what was removed", call("Stat", map[string]any{"path": dir}), 404, "not_found")
}
