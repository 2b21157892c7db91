package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// fetched is a polled watcher whose events are fetched through any gateway.
type fetched struct {
	box, id string
	all     []string
}

// fetch polls a gateway once.
func (f *fetched) fetch(t *testing.T, a *rig.API, headers ...string) []string {
	t.Helper()
	ans := a.RPC(t, f.box, fsService+"GetWatcherEvents", map[string]any{"watcherId": f.id}, headers...)
	var res struct {
		Events []struct{ Name, Type string }
	}
	if ans.Decode(t, &res); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	var out []string
	for _, e := range res.Events {
		out = append(out, strings.TrimPrefix(e.Type, "EVENT_TYPE_")+" "+e.Name)
	}
	f.all = append(f.all, out...)
	return out
}

// until polls until an event arrives.
func (f *fetched) until(t *testing.T, a *rig.API, event string) {
	t.Helper()
	from := len(f.all)
	if !rig.Poll(20*time.Second, func() bool { f.fetch(t, a); return slices.Contains(f.all[from:], event) }) {
		t.Errorf("%s did not arrive: %v", event, f.all[from:])
	}
}

// ask sends the request and disconnects without the response.
func (f *fetched) ask(t *testing.T, a *rig.API) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body, err := json.Marshal(map[string]any{"watcherId": f.id})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %sGetWatcherEvents HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nE2b-Sandbox-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		fsService, a.Key, f.box, len(body), body)
}

// The events of a watcher arrive once and in order through any gateway, and events of a
// lost response arrive again.
func TestWatchersThroughAnyGateway(t *testing.T) {
	t.Parallel()
	s := rig.NewSplit(t, rig.Topology{Gateways: 2})
	a, b := s.APIs[0], s.APIs[1]
	box := a.Create(t)
	dir := "/tmp/replicas-" + box.ID
	write := func(name string) {
		t.Helper()
		if ans := a.RPC(t, box.ID, fsService+"Write", map[string]any{"path": dir + "/" + name, "data": "eA=="}); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
	}
	a.RPC(t, box.ID, fsService+"MakeDir", map[string]any{"path": dir})
	var made struct{ WatcherID string }
	a.RPC(t, box.ID, fsService+"CreateWatcher", map[string]any{"path": dir}).Decode(t, &made)
	f := &fetched{box: box.ID, id: made.WatcherID}

	var want []string
	for i := range 10 {
		name := fmt.Sprintf("f%d", i)
		write(name)
		f.until(t, s.APIs[i%2], "WRITE "+name)
		want = append(want, "CREATE "+name, "CHMOD "+name, "WRITE "+name)
	}
	f.fetch(t, a)
	if f.fetch(t, b); !slices.Equal(f.all, want) {
		t.Errorf("got %v\nwant %v", f.all, want)
	}

	for i := range 5 {
		name := fmt.Sprintf("left%d", i)
		write(name)
		f.ask(t, b)
		f.until(t, s.APIs[i%2], "CREATE "+name)
	}
	write("killed")
	f.ask(t, b)
	s.Program("gateway-2").Kill9()
	if f.until(t, a, "WRITE killed"); !slices.Contains(f.all, "CREATE killed") {
		t.Errorf("the events of the killed gateway's response are lost: %v", f.all)
	}
	write("again")
	var first []string
	key := 0
	rig.Poll(20*time.Second, func() bool {
		key++
		first = f.fetch(t, a, "Idempotency-Key", fmt.Sprint("k", key))
		return len(first) > 0
	})
	if again := f.fetch(t, a, "Idempotency-Key", fmt.Sprint("k", key)); len(first) == 0 || !slices.Equal(again, first) {
		t.Errorf("retried: %v, want %v", again, first)
	}
}
