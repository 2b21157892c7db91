package sandbox

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/events/kind"
)

func TestCheckMounts(t *testing.T) {
	for path, want := range map[string]bool{
		"/data": true, "/home/user/data": true, "/usr/local": true, "/usr/share/x": true, "/usr/lib/x": true, "/var/lib/x": true,
		"/" + strings.Repeat("n", 255): true,
		"":                             false, "data": false, "/a/": false, "/a/../b": false, "/a\x00": false, "/": false,
		"/proc/x": false, "/dev/shm": false, "/usr": false, "/usr/bin": false, "/usr/lib64": false, "/etc": false,
		"/" + strings.Repeat("n", 256):      false,
		"/" + strings.Repeat("n/", 512)[1:]: false,
	} {
		err := CheckMounts([]Mount{{Path: path}})
		if (err == nil) != want || err != nil && !kind.Is(err, kind.Invalid) {
			t.Errorf("%.30q (%d bytes): %v", path, len(path), err)
		}
	}
	if CheckMounts([]Mount{{Path: "/a"}, {Path: "/a"}}) == nil {
		t.Error("two volumes at one path were accepted")
	}
}
