package e2e_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/e2e/rig"
)

// TestStoreSDK uses volumes and secrets by the released e2b package. The values of secrets
// are in no file and no output of the service.
func TestStoreSDK(t *testing.T) {
	onlyWithVolumes(t)
	t.Parallel()
	u := rig.NewUp(t, rig.Options{Args: []string{"--log-level", "debug"}})
	prefix := "t" + strings.ToLower(strings.NewReplacer("/", "", "_", "").Replace(t.Name()))
	for _, r := range rig.Node(t, append(sdkEnv(t, u.API), "E2B_VOLUME_API_URL="+u.URL), "store.mjs", prefix) {
		t.Run(r.Name, func(t *testing.T) {
			if !r.OK {
				t.Error(r.Error)
			}
		})
	}
	canary := []byte("canary-" + prefix)
	looked := 0
	err := filepath.WalkDir(u.Data, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // files may disappear
		}
		raw, err := os.ReadFile(p)
		if err == nil {
			looked += len(raw)
		}
		if bytes.Contains(raw, canary) {
			t.Errorf("%s has the value of a secret", p)
		}
		return nil
	})
	if err != nil || looked < 1<<10 {
		t.Errorf("searched %d bytes, %v", looked, err)
	}
	if strings.Contains(u.Dump(), string(canary)) {
		t.Error("the value of a secret was printed")
	}
}

// A volume keeps its files across a kill of the service. A volume whose files are missing on
// the host is an error and never an empty directory.
func TestMissingVolumeFilesAreAnError(t *testing.T) {
	onlyWithVolumes(t)
	t.Parallel()
	u := rig.NewUp(t, rig.Options{})
	var v struct{ VolumeID, Token string }
	u.Want(t, 201, "POST", "/volumes", map[string]string{"name": "kept"}).Decode(t, &v)
	content := "/volumecontent/" + v.VolumeID
	bearer := []string{"Authorization", "Bearer " + v.Token, "X-Api-Key", ""}
	u.Want(t, 201, "PUT", content+"/file?path=/f", []byte("kept"), append(bearer, "Content-Type", octets)...)
	u.Kill9()
	if err := u.Restart(); err != nil {
		t.Fatal(err)
	}
	if ans := u.Want(t, 200, "GET", content+"/file?path=/f", nil, bearer...); string(ans.Body) != "kept" {
		t.Errorf("after a kill: %v", ans)
	}
	if err := os.RemoveAll(filepath.Join(u.Data, "volumes")); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(filepath.Join(u.Data, "*", "volumes", "*")); err != nil || len(found) > 1 {
		t.Fatal(found, err)
	} else if len(found) == 1 {
		if err := os.RemoveAll(found[0]); err != nil {
			t.Fatal(err)
		}
	}
	ans := u.Do(t, "GET", content+"/dir?path=/", nil, bearer...)
	if ans.Status != 410 || !strings.Contains(string(ans.Body), "not on their host") {
		t.Errorf("missing files: %v", ans)
	}
	ans = u.Do(t, "POST", "/v2/sandboxes", map[string]any{"templateID": "base", "volumeMounts": []map[string]string{{"name": "kept", "path": "/data"}}})
	if ans.Status < 400 || !strings.Contains(string(ans.Body), "not on their host") {
		t.Errorf("a sandbox with missing files: %v", ans)
	}
}

// A volume is not part of a snapshot, and a sandbox from a snapshot can mount it.
func TestVolumesBesideSnapshots(t *testing.T) {
	t.Parallel()
	onlyWithVolumes(t)
	a := api(t)
	onlySandboxed(t)
	name := fmt.Sprintf("beside-%d", os.Getpid())
	var v struct{ VolumeID string }
	a.Want(t, 201, "POST", "/volumes", map[string]string{"name": name}).Decode(t, &v)
	t.Cleanup(func() { a.Call("DELETE", "/volumes/"+v.VolumeID, nil) })
	mounts := []map[string]string{{"name": name, "path": "/home/user/data"}}
	box := a.Create(t, "volumeMounts", mounts).ID
	if got := rig.Output(a.Commands(t, box, "echo mine > f; echo ours > data/f; cat f data/f").All(t), "stdout"); got != "mine\nours\n" {
		t.Fatalf("the sandbox has %q", got)
	}
	var snap struct {
		ID     string `json:"snapshotID"`
		Memory bool   `json:"memory"`
	}
	a.Want(t, 201, "POST", "/sandboxes/"+box+"/snapshots", map[string]any{}).Decode(t, &snap)
	if snap.Memory {
		t.Error("the snapshot has processes with open files of a volume")
	}
	a.Kill(t, box)
	next := a.Create(t, "templateID", snap.ID, "volumeMounts", mounts).ID
	if got := rig.Output(a.Commands(t, next, "cat f data/f").All(t), "stdout"); got != "mine\nours\n" {
		t.Errorf("a sandbox from the snapshot has %q", got)
	}
}
