package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
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

// unmounted is the event that says what was not stored.
type unmounted struct {
	Type     string
	Unstored []string
	Count    int `json:"unstored_count"`
}

// unmounts returns the events of a sandbox's record.
func (m *mounting) unmounts(t *testing.T, vm string) (out []unmounted) {
	t.Helper()
	id := strings.TrimPrefix(vm, "/v1/sandboxes/sbx_")
	ans := m.Want(t, 200, "GET", "/v1/events?follow=0&kind=sandbox&sandbox="+id, nil) // as the operator
	for line := range strings.Lines(string(ans.Body)) {
		var e unmounted
		if must(t, json.Unmarshal([]byte(line), &e)); e.Type == "unmounted" {
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

// mountingsOf returns clients of the two gateways.
func mountingsOf(t *testing.T, s *rig.Split) (one, two *mounting) {
	t.Helper()
	token := []string{"Authorization", "Bearer " + userToken(t, s.APIs[0].URL)}
	var made struct{ Key string }
	s.APIs[0].Want(t, 201, "POST", "/v1/api-keys", `{"name":"mount"}`, token...).Decode(t, &made)
	key := []string{"Authorization", "Bearer " + made.Key}
	return &mounting{API: s.APIs[0], token: token, key: key}, &mounting{API: s.APIs[1], token: token, key: key}
}

// A host is killed while the store refuses files: the record of the sandbox names them.
func TestE2AMountOfKilledHost(t *testing.T) {
	t.Parallel()
	objects := s3mem.New()
	must(t, objects.CreateBucket("files"))
	fake := gofakes3.New(objects).Server()
	var refuses atomic.Bool
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses.Load() && r.Method == http.MethodPut {
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
	two.Want(t, 503, "POST", vm+"/exec", `{"command":"true"}`, two.key...) // it cannot store the files
	s.Program("host-1").Kill9()
	var got []unmounted
	if !rig.Poll(2*time.Minute, func() bool { got = two.unmounts(t, vm); return len(got) > 0 }) {
		t.Fatal("the record does not say what was lost")
	}
	if u := got[len(got)-1]; u.Count != 2 || strings.Join(u.Unstored, " ") != "b d/a" {
		t.Errorf("%+v", got)
	}
	must(t, s.RestartProgram("host-1"))
	must(t, s.Settled(1))
}
