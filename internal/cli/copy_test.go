package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is copied with its permissions, and into DESTINATION if that is a directory.
func TestCopyFiles(t *testing.T) {
	g := newFakeGateway(t)
	dir := t.TempDir()
	local := filepath.Join(dir, "run.sh")
	if err := os.WriteFile(local, []byte("text"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := g.verb(nil, "cp", local, "ia:/dir"); got.code != 0 || fmt.Sprint(g.Files) != "map[/dir/run.sh 750:text]" {
		t.Errorf("up: exit %d %s, files %v", got.code, got.say, g.Files)
	}
	if got := g.verb(nil, "cp", "iabc:/file", dir); got.code != 0 {
		t.Errorf("down: exit %d %s", got.code, got.say)
	}
	copied := filepath.Join(dir, "file")
	info, err := os.Stat(copied)
	if b, rerr := os.ReadFile(copied); err != nil || rerr != nil || string(b) != "content" || info.Mode().Perm() != 0o640 {
		t.Errorf("down: %q %v %v %v", b, info, err, rerr)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(local, link); err != nil {
		t.Fatal(err)
	}
	g.verb(nil, "cp", "iabc:/file", link)
	if b, err := os.ReadFile(local); err != nil || string(b) != "content" {
		t.Errorf("through a link: %q %v", b, err)
	}
	for args, say := range map[string]string{
		"cp a b": "one of SOURCE and DESTINATION must be SANDBOX:PATH", "cp iabc:/a i1:/b": "cp cannot copy between sandboxes",
		"cp iabc: b": "must be followed by a path", "cp iabc:/none .": "iabc:/none does not exist", "cp iend:/file .": "sandbox iend ended", "cp izz:/file .": "sandbox not found",
		"cp " + dir + " iabc:/file": "is a directory, but iabc:/file is a file",
	} {
		if got := g.verb(nil, strings.Fields(args)...); got.code != 1 || !strings.Contains(got.say, say) {
			t.Errorf("%s: exit %d %q; want %q", args, got.code, got.say, say)
		}
	}
}
