package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/e2e/rig"
)

// TestIdempotencyKeyStartsOneProcess covers B45: the same key is the same process; another
// body with it is a conflict.
func TestIdempotencyKeyStartsOneProcess(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const count = "echo fork >> /tmp/forks; cat /tmp/forks | wc -l; exit 4"
	keyed := []string{"Idempotency-Key", "k-1"}
	first := a.StartStream(t, box.ID, count, keyed...).All(t)
	again := a.StartStream(t, box.ID, count, keyed...).All(t)
	if first.Process == "" || first.Process != again.Process || first.PID != again.PID || again.Stdout() != "1\n" || again.End == nil || again.End.ExitCode != 4 {
		t.Errorf("first %s %q, again %s %q %s", first.Process, first.Stdout(), again.Process, again.Stdout(), again.Last.Payload)
	}
	other := a.StartStream(t, box.ID, "echo other", keyed...).All(t)
	if other.Error == nil || other.Error.Code != "already_exists" || len(other.Out) > 0 {
		t.Errorf("another body: %s", other.Last.Payload)
	}
	body := map[string]any{"cmd": "echo x >> /tmp/ndjson"}
	headers := []string{"E2b-Sandbox-Id", box.ID, "Idempotency-Key", "k-2"}
	one := a.Stream(t, http.MethodPost, "/commands", body, headers...).All(t)
	two := a.Stream(t, http.MethodPost, "/commands", body, headers...).All(t)
	if one[0].Process != two[0].Process || raws(one) != raws(two) {
		t.Errorf("/commands:\n%s\n%s", raws(one), raws(two))
	}
	body["cmd"] = "echo y"
	if ans := a.Do(t, http.MethodPost, "/commands", body, headers...); ans.Status != http.StatusConflict {
		t.Errorf("/commands, another body: %v", ans)
	}
	body = map[string]any{"cmd": "echo x >> /tmp/ndjson", "env": map[string]string{"A": "1"}}
	if ans := a.Do(t, http.MethodPost, "/commands", body, headers...); ans.Status != http.StatusConflict {
		t.Errorf("/commands, another environment: %v", ans)
	}
	// Ten at the same time are one process too.
	var wg sync.WaitGroup
	ids := make([]string, 10)
	for i := range ids {
		wg.Go(func() {
			s, ans, err := a.OpenStream(http.MethodPost, "/commands", map[string]any{"cmd": "echo x >> /tmp/ten; sleep 0.2"},
				"E2b-Sandbox-Id", box.ID, "Idempotency-Key", "k-3")
			if err != nil || s == nil {
				t.Errorf("%v %v", ans, err)
				return
			}
			defer s.Close()
			l, err := s.Next()
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = l.Process
			for err == nil {
				_, err = s.Next()
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("ids: %v", ids)
			break
		}
	}
	if got := a.StartStream(t, box.ID, "cat /tmp/ndjson /tmp/ten | wc -l").All(t).Stdout(); got != "2\n" {
		t.Errorf("forks: %q", got)
	}
}

// TestStartIsRetriedAfterALostResponse covers B46: a start whose response was lost is retried
// and forks once, wherever it was cut.
func TestStartIsRetriedAfterALostResponse(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	const tries = 30
	for i := range tries {
		body, err := json.Marshal(map[string]any{"cmd": fmt.Sprintf("echo %d >> /tmp/lost; echo out %d", i, i)})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(a.URL, "http://"), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("lost-%d", i)
		fmt.Fprintf(conn, "POST /commands HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nE2b-Sandbox-Id: %s\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			a.Key, box.ID, key, len(body), body)
		switch i % 3 {
		case 1: // after a while
			<-time.After(time.Duration(i) * 100 * time.Microsecond)
		case 2: // after the first bytes of the response
			conn.Read(make([]byte, 40))
		}
		if tcp, ok := conn.(*net.TCPConn); ok && i%2 == 0 {
			tcp.SetLinger(0)
		}
		conn.Close()
		lines := a.Stream(t, http.MethodPost, "/commands", body, "E2b-Sandbox-Id", box.ID, "Idempotency-Key", key).All(t)
		if end := rig.End(t, lines); *end.ExitCode != 0 || rig.Output(lines, "stdout") != fmt.Sprintf("out %d\n", i) {
			t.Errorf("try %d:\n%s", i, raws(lines))
		}
	}
	var want strings.Builder
	for i := range tries {
		fmt.Fprintln(&want, i)
	}
	if got := a.StartStream(t, box.ID, "sort -n /tmp/lost").All(t).Stdout(); got != want.String() {
		t.Errorf("forks: %q", got)
	}
}

// TestRepeatedSignalIsHarmless covers B48: a repeated signal is not an error, and kills no
// other process.
func TestRepeatedSignalIsHarmless(t *testing.T) {
	a := api(t)
	box := a.Create(t)
	bystander := a.StartStream(t, box.ID, "sleep 60").Started(t).Event.Start.PID
	r := a.StartStream(t, box.ID, "trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done")
	pid := r.Started(t).Event.Start.PID
	until(t, r, "ready\n")
	for range 3 {
		if ans := a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGTERM")); ans.Status != http.StatusOK {
			t.Errorf("SIGTERM: %v", ans)
		}
		until(t, r, "term\n")
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			ans, err := a.Call(http.MethodPost, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL"), "E2b-Sandbox-Id", box.ID)
			if err != nil || ans.Status != http.StatusOK && ans.Status != http.StatusNotFound {
				t.Errorf("SIGKILL: %v %v", ans, err)
			}
		})
	}
	wg.Wait()
	if end, _ := rest(t, r); end == nil || end.Status != "signal: killed" {
		t.Errorf("end: %+v", end)
	}
	wantCode(t, "after the end", a.RPC(t, box.ID, "/process.Process/SendSignal", byPID(pid, "signal", "SIGNAL_SIGKILL")), http.StatusNotFound, "not_found")
	if got := list(t, a, box.ID); len(got) != 1 || got[0].PID != bystander {
		t.Errorf("processes left: %+v", got)
	}
}
