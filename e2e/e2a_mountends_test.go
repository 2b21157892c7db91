package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/millrace/millrace/e2e/rig"
)

// createIdle creates a sandbox with a workspace that ends when it is not used for a number of seconds.
func (m *mounting) createIdle(t *testing.T, seconds string) string {
	t.Helper()
	var made struct {
		ID string `json:"vm_id"`
	}
	m.Want(t, 201, "POST", "/v1/sandboxes", `{"template":"standard","idle_timeout_seconds":`+seconds+`,"workspace_enabled":true,"app_id":"app","capset_id":"set"}`, m.key...).Decode(t, &made)
	return "/v1/sandboxes/" + made.ID
}

// ended reports whether a sandbox is known to have ended.
func (m *mounting) ended(vm string) bool {
	var v struct{ State string }
	a, err := m.Call("GET", vm, nil, m.key...)
	return err == nil && json.Unmarshal(a.Body, &v) == nil && v.State == "destroyed"
}

// mountEvent is an event about the workspace of a sandbox.
type mountEvent struct {
	Type     string
	Gateway  string
	Unstored []string
	Count    int `json:"unstored_count"`
}

// mountEvents returns the events of a type in a sandbox's record.
func (m *mounting) mountEvents(t *testing.T, vm, of string) (out []mountEvent) {
	t.Helper()
	id := strings.TrimPrefix(vm, "/v1/sandboxes/sbx_")
	ans := m.Want(t, 200, "GET", "/v1/events?follow=0&kind=sandbox&sandbox="+id, nil) // as the operator
	for line := range strings.Lines(string(ans.Body)) {
		var e mountEvent
		if must(t, json.Unmarshal([]byte(line), &e)); e.Type == of {
			out = append(out, e)
		}
	}
	return out
}

// What changed in a sandbox is in its workspace when the sandbox has ended for being idle, and when the whole
// program has stopped.
func TestE2AMountAtIdleEnd(t *testing.T) {
	t.Parallel()
	u := rig.NewUp(t, rig.Options{Args: []string{"--sign-up-test-mode"}})
	m := newMounting(t, u)
	vm := m.createIdle(t, "2")
	m.exec(t, vm, "printf idle > /workspace/idle")
	if !rig.Poll(time.Minute, func() bool { return m.ended(vm) }) {
		t.Fatal("the sandbox did not end")
	}
	if got := m.read(t, "idle"); got != "idle" {
		t.Errorf("%q", got)
	}
	vm = m.create(t)
	m.exec(t, vm, "printf stop > /workspace/stop")
	must(t, u.Term())
	must(t, u.Restart())
	if got := m.read(t, "stop"); got != "stop" {
		t.Errorf("%q", got)
	}
	m.Want(t, 200, "DELETE", vm, nil, m.key...)
}

// A gateway is killed: another one stores what has changed in the sandbox, without a request for it.
func TestE2AMountOfKilledGateway(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, GatewayArgs: []string{"--sign-up-test-mode"}})
	one, two := mountingsOf(t, s)
	vm := one.create(t)
	one.exec(t, vm, "printf kept > /workspace/kept")
	s.Program("gateway-1").Kill9()
	if !rig.Poll(2*time.Minute, func() bool { return two.files(t) == "kept" }) {
		t.Errorf("files: %s", two.files(t))
	}
	must(t, s.RestartProgram("gateway-1"))
	two.Want(t, 200, "DELETE", vm, nil, two.key...)
}

// Two gateways mount a sandbox at once: one of them stores its end, and the other one after it was killed.
func TestE2AMountAtTwoGateways(t *testing.T) {
	t.Parallel()
	s := newTopology(t, rig.Topology{Gateways: 2, GatewayArgs: []string{"--sign-up-test-mode"}})
	one, two := mountingsOf(t, s)
	both := func(vm, command string) {
		var g sync.WaitGroup
		for _, m := range []*mounting{one, two} {
			g.Go(func() { m.exec(t, vm, command) })
		}
		g.Wait()
	}
	vm := one.create(t)
	both(vm, "true")
	if m := one.mountEvents(t, vm, "mounted"); len(m) != 1 {
		t.Errorf("%+v", m)
	}
	two.Want(t, 200, "DELETE", vm, nil, two.key...)

	vm = one.create(t)
	one.exec(t, vm, "cd /workspace && printf x > a && printf x > b")
	both(vm, "cd /workspace && printf y >> a && rm -f b && printf x > c")
	if m := one.mountEvents(t, vm, "mounted"); len(m) != 1 {
		t.Errorf("%+v", m)
	}
	s.Program("gateway-1").Kill9()
	// The first gateway may have stored the files; the second one takes over when its lease has ended.
	if !rig.Poll(time.Minute, func() bool { return two.files(t) == "a c" && len(two.mountEvents(t, vm, "mounted")) == 2 }) {
		t.Errorf("files: %s, %+v", two.files(t), two.mountEvents(t, vm, "mounted"))
	}
	two.exec(t, vm, "printf late > /workspace/late")
	two.Want(t, 200, "DELETE", vm, nil, two.key...)
	if got := two.files(t) + " " + two.read(t, "a") + " " + two.read(t, "late"); got != "a c late xyy late" {
		t.Error(got)
	}
	if !rig.Poll(time.Minute, func() bool { return len(two.mountEvents(t, vm, "unmounted")) == 1 }) {
		t.Errorf("%+v", two.mountEvents(t, vm, "unmounted"))
	}
	m := two.mountEvents(t, vm, "mounted")
	if u := two.mountEvents(t, vm, "unmounted"); len(m) != 2 || m[0].Gateway == m[1].Gateway || len(u) != 1 || u[0].Count != 0 {
		t.Errorf("%+v, %+v", m, u)
	}
	must(t, s.RestartProgram("gateway-1"))
}

// mountingsOf returns clients of the two gateways.
func mountingsOf(t *testing.T, s *rig.Split) (one, two *mounting) {
	t.Helper()
	token := []string{"Authorization", "Bearer " + userToken(t, s.APIs[0].URL)}
	var made struct{ Key string }
	s.APIs[0].Want(t, 201, "POST", "/v1/api-keys", `{"name":"mount"}`, token...).Decode(t, &made)
	key := []string{"Authorization", "Bearer " + made.Key}
	return &mounting{API: s.APIs[0], token: token, key: key}, &mounting{API: s.APIs[1], token: token, key: key}
}

// A gateway stops and a host is killed while the store refuses a file: the record of the sandbox names it, and
// others are stored.
func TestE2AMountOfKilledHost(t *testing.T) {
	t.Parallel()
	objects := s3mem.New()
	must(t, objects.CreateBucket("files"))
	fake := gofakes3.New(objects).Server()
	var refuses atomic.Bool
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses.Load() && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/b") {
			http.Error(w, `<Error><Code>AccessDenied</Code></Error>`, http.StatusForbidden)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(s3.Close)
	s := newTopology(t, rig.Topology{Gateways: 2, GatewayArgs: []string{"--sign-up-test-mode", "--s3-url", s3.URL + "/files", "--s3-access-key", "AKIA", "--s3-secret-key", "secret"}})
	one, two := mountingsOf(t, s)
	vm := one.create(t)
	one.exec(t, vm, "true")
	refuses.Store(true)
	one.exec(t, vm, "cd /workspace && mkdir d && printf 1 > d/a && printf 2 > b")
	must(t, s.Program("gateway-1").Term())
	if !rig.Poll(time.Minute, func() bool { return strings.Contains(s.Program("gateway-2").Log(), "flush workspace failed") }) {
		t.Fatal("no other gateway stores the workspace")
	}
	s.Program("host-1").Kill9()
	var got []mountEvent
	if !rig.Poll(2*time.Minute, func() bool { got = two.mountEvents(t, vm, "unmounted"); return len(got) == 2 }) {
		t.Fatalf("the record does not say what was lost: %+v", got)
	}
	for _, u := range got {
		if u.Count != 1 || strings.Join(u.Unstored, " ") != "b" {
			t.Errorf("%+v", got)
		}
	}
	if got := two.files(t) + " " + two.read(t, "d/a"); got != "d/a 1" {
		t.Errorf("the workspace has %s", got)
	}
	must(t, s.RestartProgram("gateway-1"))
	must(t, s.RestartProgram("host-1"))
	must(t, s.Settled(1))
}
