package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/millrace/millrace/e2e/rig"
)

// mounting is a user's client of sandboxes with a workspace.
type mounting struct {
	*rig.API

	token, key []string // headers
}

const mountedFiles = "/v1/workspaces/app/set"

func newMounting(t *testing.T, u *rig.Up) *mounting {
	t.Helper()
	token := userToken(t, u.URL)
	m := &mounting{API: u.API, token: []string{"Authorization", "Bearer " + token}}
	var made struct {
		Key string `json:"key"`
	}
	m.Want(t, 201, "POST", "/v1/api-keys", `{"name":"mount"}`, m.token...).Decode(t, &made)
	m.key = []string{"Authorization", "Bearer " + made.Key}
	return m
}

func (m *mounting) create(t *testing.T) string {
	t.Helper()
	var made struct {
		ID string `json:"vm_id"`
	}
	m.Want(t, 201, "POST", "/v1/sandboxes", `{"template":"standard","idle_timeout_seconds":600,"workspace_enabled":true,"app_id":"app","capset_id":"set"}`, m.key...).Decode(t, &made)
	return "/v1/sandboxes/" + made.ID
}

func (m *mounting) exec(t *testing.T, vm, command string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]string{"command": command})
	must(t, err)
	return string(m.Want(t, 200, "POST", vm+"/exec", string(raw), m.key...).Body)
}

// files returns the paths of the files of the workspace.
func (m *mounting) files(t *testing.T) string {
	t.Helper()
	var l struct{ Files []struct{ Path string } }
	m.Want(t, 200, "GET", mountedFiles, nil, m.token...).Decode(t, &l)
	var out []string
	for _, f := range l.Files {
		out = append(out, f.Path)
	}
	return strings.Join(out, " ")
}

func (m *mounting) store(t *testing.T, path, data string) {
	t.Helper()
	var l struct{ URL string }
	m.Want(t, 200, "PUT", mountedFiles+"/files/"+path, nil, m.token...).Decode(t, &l)
	if a := putFile(t, l.URL, data); a != 200 {
		t.Fatalf("upload %s: %d", path, a)
	}
}

func (m *mounting) read(t *testing.T, path string) string {
	t.Helper()
	return string(m.Want(t, 200, "GET", mountedFiles+"/files/"+path, nil, append([]string{"Accept", "application/octet-stream"}, m.token...)...).Body)
}

// E-057, E-091, E-360, E-364: the files of a workspace are in a sandbox, and what changes there is in the workspace
// when the sandbox has been destroyed. So it is with both stores of files.
func TestE2AMount(t *testing.T) {
	t.Parallel()
	objects := s3mem.New()
	must(t, objects.CreateBucket("files"))
	s3 := httptest.NewServer(gofakes3.New(objects).Server())
	t.Cleanup(s3.Close)
	for name, args := range map[string][]string{
		"log": nil, "bucket": {"--s3-url", s3.URL + "/files", "--s3-access-key", "AKIA", "--s3-secret-key", "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			u := rig.NewUp(t, rig.Options{Args: append(args, "--sign-up-test-mode")})
			m := newMounting(t, u)
			m.store(t, "in/a.txt", "from outside")
			m.store(t, "link/secret", "x")
			m.store(t, "old", "old")

			vm := m.create(t)
			if out := m.exec(t, vm, "cat /workspace/in/a.txt"); !strings.Contains(out, "from outside") {
				t.Errorf("%s", out)
			}
			m.exec(t, vm, "cd /workspace && rm -r in link && mkdir -p made/deep && printf new > made/deep/b && printf newer > old && ln -s /etc/passwd made/link && ln -s /etc link && printf x > 'a\tb'")
			m.Want(t, 200, "DELETE", vm, nil, m.key...)
			if got := m.files(t); got != "link/secret made/deep/b old" {
				t.Errorf("after DELETE: %s", got)
			}
			if got := m.read(t, "made/deep/b") + m.read(t, "old"); got != "newnewer" {
				t.Errorf("%q", got)
			}

			vm = m.create(t)
			if out := m.exec(t, vm, "cd /workspace && cat old made/deep/b && ls"); !strings.Contains(out, "newernew") {
				t.Errorf("%s", out)
			}
			m.Want(t, 200, "DELETE", vm, nil, m.key...)
			if n := os.Getenv("MILLRACE_MOUNT_FILES"); n != "" {
				m.measure(t, n)
			}
		})
	}
}

// A gateway that has not mounted a sandbox shows what changed in the workspace meanwhile, also if the size is the
// same, and keeps what is the same.
func TestE2AMountAtAnotherGateway(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, GatewayArgs: []string{"--sign-up-test-mode"}})
	token := []string{"Authorization", "Bearer " + userToken(t, s.APIs[0].URL)}
	var made struct{ Key string }
	s.APIs[0].Want(t, 201, "POST", "/v1/api-keys", `{"name":"mount"}`, token...).Decode(t, &made)
	key := []string{"Authorization", "Bearer " + made.Key}
	one, two := &mounting{API: s.APIs[0], token: token, key: key}, &mounting{API: s.APIs[1], token: token, key: key}
	vm := one.create(t)
	one.exec(t, vm, "cd /workspace && printf 1 > changes && printf 1 > stays && touch -d 2020-01-01 changes stays")
	one.store(t, "changes", "2")
	one.store(t, "stays", "1")
	if out := two.exec(t, vm, "cd /workspace && cat changes stays && find stays -mtime +100"); !strings.Contains(out, "21stays") {
		t.Errorf("%s", out)
	}
	two.Want(t, 200, "DELETE", vm, nil, key...)
}

// measure logs how long it takes to store files of a sandbox, and to show them in the next one.
func (m *mounting) measure(t *testing.T, files string) {
	t.Helper()
	n, err := strconv.Atoi(files)
	must(t, err)
	vm := m.create(t)
	m.exec(t, vm, "mkdir -p /workspace/many && cd /workspace/many && seq "+files+" | xargs -n 1 sh -c 'echo $0 > f$0'")
	begun := time.Now()
	m.Want(t, 200, "DELETE", vm, nil, m.key...)
	t.Logf("flush %d files: %v", n, time.Since(begun))
	vm = m.create(t)
	begun = time.Now()
	if out := m.exec(t, vm, "ls /workspace/many | wc -l"); !strings.Contains(out, files) {
		t.Error(out)
	}
	t.Logf("mount %d files: %v", n, time.Since(begun))
	m.Want(t, 200, "DELETE", vm, nil, m.key...)
}

// putFile sends a file to a link.
func putFile(t *testing.T, url, data string) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(data))
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	return resp.StatusCode
}
