package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// docs/e2a-sandboxes.md, word for word.
func TestE2ASandboxDocs(t *testing.T) {
	t.Parallel()
	u := sharedUp(t)
	raw, err := os.ReadFile("../docs/e2a-sandboxes.md")
	must(t, err)
	r := &docsReader{string(raw), []string{"API=" + u.URL, "KEY=" + u.Key, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
	const section = "From a create to the end"
	var made struct {
		ID    string `json:"vm_id"`
		State string
	}
	must(t, json.Unmarshal([]byte(r.follow(t, section, 0)[0]), &made))
	if made.State != "running" {
		t.Fatalf("%+v", made)
	}
	out := r.follow(t, section, 1, "VM="+made.ID)
	if !strings.Contains(out[0], made.ID) || !strings.Contains(out[1], `"metadata":{"tag":"prod","user_id":"default"}`) || out[2] != `{"vm_id":"`+made.ID+`","state":"destroyed"}` {
		t.Errorf("%q", out)
	}
}

// e2aVM creates a sandbox at e2a's route.
func e2aVM(t *testing.T, a *rig.API, status int) (vm string) {
	t.Helper()
	var made struct {
		ID string `json:"vm_id"`
	}
	a.Want(t, status, "POST", "/v1/sandboxes", `{"template":"standard","idle_timeout_seconds":600}`, "Authorization", "Bearer "+a.Key).Decode(t, &made)
	return made.ID
}

// withArgument reports whether a process of this machine has an argument.
func withArgument(t *testing.T, arg string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range all {
		if raw, err := os.ReadFile(file); err == nil && bytes.Contains(raw, []byte("\x00"+arg+"\x00")) {
			return true
		}
	}
	return false
}

// E-061, E-062, E-072, E-074, E-090, E-251: a host that is full, that does not answer, and that left.
func TestE2ASandboxesOfAHost(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{HostArgs: []string{"--capacity", "1"}})
	a := s.APIs[0]
	bearer := []string{"Authorization", "Bearer " + a.Key}
	first := e2aVM(t, a, 201)
	e2aVM(t, a, 409)
	id := strings.TrimPrefix(first, "sbx_")
	const arg = "31415926535"
	run := a.StartStream(t, id, "sleep "+arg)
	run.Started(t)
	if !rig.Poll(20*time.Second, func() bool { return withArgument(t, arg) }) {
		t.Fatal("the process does not run")
	}
	a.Want(t, 200, "DELETE", "/v1/sandboxes/"+first, nil, bearer...)
	if withArgument(t, arg) {
		t.Error("a process outlives DELETE")
	}
	run.Close()
	a.Want(t, 502, "GET", "/", nil, "Host", "49984-"+id+".localhost")
	a.Want(t, 404, "DELETE", "/v1/sandboxes/"+first, nil, bearer...)

	second := e2aVM(t, a, 201) // its place is free at once
	host := s.Program("host-1")
	list := func() rig.Answer { return a.Do(t, "GET", "/v1/sandboxes", nil, bearer...) }
	host.Stop()
	if !rig.Poll(30*time.Second, func() bool {
		ans := list()
		return ans.Status == 200 && strings.Contains(string(ans.Body), `"partial":true`) && strings.Contains(string(ans.Body), second)
	}) {
		t.Errorf("with a silent host: %v", list())
	}
	host.Cont()
	if !rig.Poll(30*time.Second, func() bool { return strings.HasPrefix(string(list().Body), "[") }) {
		t.Errorf("with a host that answers again: %v", list())
	}
	a.Want(t, 200, "DELETE", "/v1/sandboxes/"+second, nil, bearer...)
	must(t, host.Term())
	if !rig.Poll(30*time.Second, func() bool { return list().Status == 503 }) {
		t.Errorf("without a host: %v", list())
	}
	e2aVM(t, a, 503)
}
