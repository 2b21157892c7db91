package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// watchEvent is a WatchDirResponse.
type watchEvent struct {
	Start      *struct{}
	Filesystem *struct {
		Name, Type string
		Overflow   bool
		Entry      *fileEntry
	}
	Seq string
}

// nextWatch reads up to the next event of a file.
func nextWatch(t *testing.T, r *rig.Raw) watchEvent {
	t.Helper()
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		var ev watchEvent
		if err := json.Unmarshal(e.Payload, &ev); err != nil || e.Flags != 0 {
			t.Fatalf("%d %s: %v", e.Flags, e.Payload, err)
		}
		if ev.Start != nil || ev.Filesystem != nil {
			return ev
		}
	}
}

// Events of a watch arrive in order, and a client that reconnects resumes after the last one.
func TestWatchDir(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/watch-" + box.ID
	a.RPC(t, box.ID, fsService+"MakeDir", map[string]any{"path": dir})
	msg := map[string]any{"path": dir, "includeEntry": true}
	in := []string{"E2b-Sandbox-Id", box.ID}
	r := a.Dial(t, rig.Message(fsService+"WatchDir", msg, in...))
	if ev := nextWatch(t, r); ev.Start == nil {
		t.Fatalf("first: %+v", ev)
	}
	process := r.Header.Get("X-Process-Id")
	write := func(name string) {
		t.Helper()
		if ans := a.RPC(t, box.ID, fsService+"Write", map[string]any{"path": dir + "/" + name, "data": "eA=="}); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
	}
	began := time.Now()
	write("a")
	ev := nextWatch(t, r)
	t.Logf("a write was reported after %v", time.Since(began))
	if ev.Filesystem.Name != "a" || ev.Filesystem.Type != "EVENT_TYPE_CREATE" || ev.Filesystem.Entry == nil || ev.Filesystem.Entry.Path != dir+"/a" {
		t.Errorf("%+v", ev.Filesystem)
	}
	for ev.Seq == "" || ev.Filesystem.Type != "EVENT_TYPE_WRITE" {
		ev = nextWatch(t, r)
	}
	r.Close()
	write("b") // while no client reads
	last, err := strconv.Atoi(ev.Seq)
	if err != nil {
		t.Fatal(err)
	}
	r = a.Dial(t, rig.Message(fsService+"WatchDir", msg, append(in, "X-Process-Id", process, "X-Replay-From", strconv.Itoa(last+1))...))
	if ev := nextWatch(t, r); ev.Start == nil {
		t.Fatalf("first again: %+v", ev)
	}
	if ev := nextWatch(t, r); ev.Filesystem.Name != "b" || ev.Filesystem.Type != "EVENT_TYPE_CREATE" {
		t.Errorf("after reconnecting: %+v", ev.Filesystem)
	}
	var list struct{ Processes []any }
	a.RPC(t, box.ID, "/process.Process/List", struct{}{}).Decode(t, &list)
	if len(list.Processes) != 0 {
		t.Errorf("a watch is listed: %v", list)
	}
	r.Close()
	for _, tt := range []struct{ path, code string }{{dir + "/none", "not_found"}, {dir + "/a", "invalid_argument"}} {
		r := a.Dial(t, rig.Message(fsService+"WatchDir", map[string]any{"path": tt.path}, in...))
		e, err := r.Next()
		var end struct{ Error struct{ Code string } }
		if json.Unmarshal(e.Payload, &end); err != nil || e.Flags != 2 || end.Error.Code != tt.code {
			t.Errorf("%s: %d %s, %v", tt.path, e.Flags, e.Payload, err)
		}
	}
}

// The events of a lost GetWatcherEvents response can be requested again.
func TestWatchers(t *testing.T) {
	t.Parallel()
	a := api(t)
	box := a.Create(t)
	dir := "/tmp/watcher-" + box.ID
	call := func(method string, msg map[string]any, headers ...string) rig.Answer {
		return a.RPC(t, box.ID, fsService+method, msg, headers...)
	}
	call("MakeDir", map[string]any{"path": dir})
	var made struct{ WatcherID string }
	ans := call("CreateWatcher", map[string]any{"path": dir, "recursive": true})
	if ans.Decode(t, &made); len(made.WatcherID) < 2 || made.WatcherID[0] != 'w' {
		t.Fatalf("%v", ans)
	}
	fetch := func(headers ...string) ([]string, string) {
		t.Helper()
		ans := call("GetWatcherEvents", map[string]any{"watcherId": made.WatcherID}, headers...)
		var res struct {
			Events []struct{ Name, Type string }
		}
		if ans.Decode(t, &res); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
		var out []string
		for _, e := range res.Events {
			out = append(out, e.Type+" "+e.Name)
		}
		return out, ans.Header.Get("X-Replay-From")
	}
	if got, _ := fetch(); len(got) != 0 {
		t.Errorf("before anything: %v", got)
	}
	_, place := fetch()
	call("Write", map[string]any{"path": dir + "/sub/f", "data": "eA=="})
	first, _ := fetch()
	if !slices.Contains(first, "EVENT_TYPE_CREATE sub") || !slices.Contains(first, "EVENT_TYPE_CREATE sub/f") {
		t.Errorf("got %v", first)
	}
	if got, _ := fetch(); len(got) != 0 {
		t.Errorf("twice: %v", got)
	}
	if got, _ := fetch("X-Replay-From", place); !slices.Equal(got, first) {
		t.Errorf("requested again: %v, want %v", got, first)
	}
	if ans := call("RemoveWatcher", map[string]any{"watcherId": made.WatcherID}); ans.Status != http.StatusOK {
		t.Error(ans)
	}
	wantCode(t, "removed", call("GetWatcherEvents", map[string]any{"watcherId": made.WatcherID}), 404, "not_found")
	wantCode(t, "unknown", call("RemoveWatcher", map[string]any{"watcherId": "w123"}), 404, "not_found")
	wantCode(t, "a file", call("CreateWatcher", map[string]any{"path": "/etc/passwd"}), 400, "invalid_argument")
	wantCode(t, "nothing", call("CreateWatcher", map[string]any{"path": dir + "/none"}), 404, "not_found")
}
