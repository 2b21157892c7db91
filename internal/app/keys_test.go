package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/events/seal"
)

func TestMasterKeySettings(t *testing.T) {
	env := func(string) string { return "" }
	for _, tt := range []struct {
		name, file, command, urls, want string
	}{
		{"in this process", "", "", "", ""},
		{"loopback", "", "", "nats://127.0.0.1:4222,nats://localhost:1,[::1]:4222", ""},
		{"one elsewhere", "", "", "nats://127.0.0.1:4222,nats://10.0.0.1:4222", "is required"},
		{"a name", "", "", "nats-1:4222", "is required"},
		{"elsewhere with a file", "k", "", "nats://10.0.0.1:4222", ""},
		{"elsewhere with a command", "", "c", "nats://10.0.0.1:4222", ""},
		{"both", "k", "c", "", "exclude each other"},
	} {
		m := masterKey{used: true}
		m.key.File, m.key.Command = tt.file, tt.command
		err := m.prepare(env, tt.urls)
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := new(masterKey).prepare(env, "nats://10.0.0.1:4222"); err != nil {
		t.Errorf("a service without a key: %v", err)
	}
}

// The master key is created outside of the data directory, and the store is not served without
// it, nor with another one.
func TestUpRequiresTheMasterKeyOfItsStore(t *testing.T) {
	dir := t.TempDir()
	up := startUp(t, dir)
	file := filepath.Join(configOf(dir), "millrace", "master.key")
	st, err := os.Stat(file)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st, err)
	}
	if !strings.Contains(up.out.String(), file+" (new: BACK IT UP") {
		t.Errorf("the place of the key is not printed:\n%s", up.out.String())
	}
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := up.stop(); err != nil {
		t.Fatal(err)
	}
	again := func(args ...string) string {
		_, _, err := root(t.Context(), up.env, append([]string{"up", "--listen", "127.0.0.1:0", "--driver", "direct", "--shim", "self"}, args...)...)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	inside := filepath.Join(dir, "master.key")
	other := filepath.Join(t.TempDir(), "other.key")
	for path, text := range map[string]string{inside: string(key), other: seal.NewMaster()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := again("--master-key", inside); !strings.Contains(got, "outside of the data directory") {
		t.Errorf("in the data directory: %q", got)
	}
	if got := again("--master-key", other); !strings.Contains(got, "wrong master key") {
		t.Errorf("another key: %q", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := again(); !strings.Contains(got, "no master key") || !strings.Contains(got, "restore") {
		t.Errorf("without a key: %q", got)
	}
	if err := os.WriteFile(file, key, 0o600); err != nil {
		t.Fatal(err)
	}
	if up = startUp(t, dir); strings.Contains(up.out.String(), "BACK IT UP") {
		t.Error("the restored key counts as new")
	}
}
