package templates

import (
	"os"
	"path/filepath"
	"testing"
)

// A tree without sudo gets the host's, a tree with one keeps it, and a tree that has no
// directory for it is unchanged.
func TestATreeWithoutSudoGetsTheHosts(t *testing.T) {
	program := filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(program, []byte("host's"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, body, want string
	}{
		{"an empty tree", "", "", "host's"},
		{"a tree with sudo", "usr/bin/sudo", "image's", "image's"},
		{"a tree whose usr is a file", "usr", "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if tt.file != "" {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(root, tt.file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, tt.file), []byte(tt.body), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := addSudo(root, program); err != nil {
				t.Fatal(err)
			}
			got, _ := os.ReadFile(filepath.Join(root, sudoPath))
			if string(got) != tt.want {
				t.Errorf("sudo is %q, want %q", got, tt.want)
			}
			fi, err := os.Stat(filepath.Join(root, sudoPath))
			if tt.want == "host's" && (err != nil || fi.Mode().Perm() != 0o755 || os.Geteuid() == 0 && fi.Mode()&os.ModeSetuid == 0) {
				t.Errorf("mode %v, %v; want 755 and set-uid", fi.Mode(), err)
			}
		})
	}
}
